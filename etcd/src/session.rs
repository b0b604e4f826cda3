//! A session with one endpoint of etcd, and its requests. Only this module and those below it name etcd's client.

mod event_watch;

use std::fmt;
use std::path::Path;
use std::time::Duration;

use etcd_client::{
    Certificate, Channel, Client, Compare, CompareOp, ConnectOptions, DeleteOptions, Error,
    GetOptions, Identity, KvClient, LeaseClient, PutOptions, TlsOptions, Txn, TxnOp, WatchClient,
    WatchOptions, WatchStream,
};
use ironmesh_catalog::Secret;
use ironmesh_catalog::text::chain;
use tokio::time::timeout;
use tonic::Code;
use tonic::transport::Endpoint;

pub use event_watch::EventWatch;

use crate::error::{EtcdError, SessionError};
use crate::options::EtcdOptions;
use crate::pages::Page;
use crate::transaction::{Condition, TransactionOutcome, Write};

/// The most time for connecting and for each request. A cluster without a leader delays its answers for
/// longer.
const PATIENCE: Duration = Duration::from_secs(3);

/// The most bytes of an answer. etcd accepts values of 1.5 MiB by default, and an answer has several.
const MAX_ANSWER: usize = 64 * 1024 * 1024;

/// How many keys of a listing are read at once, so that the largest values are below the limit together.
const LISTED: i64 = 32;

/// How often a listing is begun that compactions interrupt.
const LISTINGS: usize = 3;

/// The idle time after which the session pings the endpoint, and the most time until the answer.
const KEEP_ALIVE: (Duration, Duration) = (Duration::from_secs(10), Duration::from_secs(5));

/// The credentials for etcd, read from the files that the settings name.
pub(crate) struct Credentials {
    ca: Option<Vec<u8>>,
    identity: Option<(Vec<u8>, Secret)>,
    user: Option<(String, Secret)>,
}

/// A connection to one endpoint.
pub struct Session {
    kv: KvClient,
    lease: LeaseClient,
    watch: WatchClient,
}

/// A key and its value.
#[derive(PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of etcd at which the key was last written.
    pub modified: i64,
}

/// A watch of one key.
pub struct Watch {
    stream: WatchStream,
}

impl fmt::Debug for Session {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Session").finish_non_exhaustive()
    }
}

/// The value may be secret, so only its length is shown.
impl fmt::Debug for KeyValue {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyValue")
            .field("key", &self.key)
            .field("bytes", &self.value.len())
            .field("modified", &self.modified)
            .finish()
    }
}

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Credentials {
    pub(crate) fn read(options: &EtcdOptions) -> Result<Self, EtcdError> {
        let section = options.section;
        let file = |key, path: &Path| {
            fs_err::read(path).map_err(|source| EtcdError::File { key, section, source })
        };
        let text = |key, path: &Path| {
            fs_err::read_to_string(path).map_err(|source| EtcdError::File { key, section, source })
        };
        let ca = options.ca.as_deref().map(|path| file("ca", path)).transpose()?;
        let identity = options.identity.as_ref().map(|(certificate, key)| {
            Ok((file("certificate", certificate)?, Secret::new(text("key", key)?)))
        });
        let user = options.user.as_ref().map(|(name, path)| {
            let password = text("password_file", path)?;
            // Editors end the file with a line break.
            Ok((name.clone(), Secret::new(password.trim_end_matches(['\r', '\n']).to_owned())))
        });
        Ok(Self { ca, identity: identity.transpose()?, user: user.transpose()? })
    }
}

impl Session {
    /// Connects, and logs in if there is a user.
    pub(crate) async fn open(
        endpoint: &str,
        credentials: Credentials,
    ) -> Result<Self, SessionError> {
        let connect = async {
            let (interval, patience) = KEEP_ALIVE;
            let mut target = Endpoint::from_shared(endpoint.to_owned())?
                .connect_timeout(PATIENCE)
                .http2_keep_alive_interval(interval)
                .keep_alive_timeout(patience)
                .keep_alive_while_idle(true);
            if let Some(ca) = credentials.ca {
                let mut tls = TlsOptions::new().ca_certificate(Certificate::from_pem(ca));
                if let Some((certificate, key)) = credentials.identity {
                    tls = tls.identity(Identity::from_pem(certificate, key.expose()));
                }
                target = target.tls_config(tls)?;
            }
            target.connect().await
        };
        let channel =
            within(connect).await?.map_err(|error| SessionError::Unavailable(causes(&error)))?;
        // A member without a leader would answer from old state, and keep a silent watch open. With this
        // option it returns an error.
        let mut options = ConnectOptions::new().with_require_leader(true);
        if let Some((name, password)) = credentials.user {
            // A token expires before a connection does.
            options = options.with_user(name, password.expose()).with_auto_token_refresh(true);
        }
        let client = within(Client::from_channel(Channel::Tonic(channel), Some(options))).await?;
        let client = client.map_err(|error| failed(error, "log in"))?;
        Ok(Self {
            kv: client.kv_client().max_decoding_message_size(MAX_ANSWER),
            lease: client.lease_client(),
            watch: client.watch_client().max_decoding_message_size(MAX_ANSWER),
        })
    }

    /// Reads `key`, and the revision of etcd of the answer: the newest one, or `at` that revision.
    pub async fn get(
        &mut self,
        key: &str,
        at: Option<i64>,
    ) -> Result<(Option<KeyValue>, i64), SessionError> {
        let options = GetOptions::new().with_revision(at.unwrap_or(0));
        let answer = within(self.kv.get(key, Some(options))).await?;
        let mut answer = answer.map_err(|error| failed(error, "read"))?;
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        let entry = answer.take_kvs().into_iter().next().map(KeyValue::new);
        Ok((entry, revision))
    }

    /// Reads `key` as this member has it, which may be outdated. It needs no leader and no quorum, so its answer tells of
    /// permissions also during an outage of others.
    pub async fn get_stale(&mut self, key: &str) -> Result<Option<KeyValue>, SessionError> {
        let options = GetOptions::new().with_serializable();
        let answer = within(self.kv.get(key, Some(options))).await?;
        let mut answer = answer.map_err(|error| failed(error, "read"))?;
        Ok(answer.take_kvs().into_iter().next().map(KeyValue::new))
    }

    /// Reads at most `limit` keys from `from` up to `end`, exclusively, in their order: as they are, or were `at` a
    /// revision of etcd.
    pub async fn page(
        &mut self,
        from: &str,
        end: &str,
        limit: i64,
        at: Option<i64>,
    ) -> Result<Page, SessionError> {
        let options =
            GetOptions::new().with_range(end).with_limit(limit).with_revision(at.unwrap_or(0));
        let answer = within(self.kv.get(from, Some(options))).await?;
        let mut answer = answer.map_err(|error| failed(error, "read"))?;
        let newest = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        let revision = at.unwrap_or(newest);
        let has_more = answer.more();
        let entries = answer.take_kvs().into_iter().map(KeyValue::new).collect();
        Ok(Page { entries, revision, has_more })
    }

    /// Lists all keys with `prefix`, the last written first, and the revision of etcd at which they were so.
    pub async fn list(&mut self, prefix: &str) -> Result<(Vec<KeyValue>, i64), SessionError> {
        let (mut entries, revision) = self.list_in_pages(prefix, LISTED).await?;
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.modified));
        Ok((entries, revision))
    }

    /// Lists all keys with `prefix` in their order, so many at once, and the revision of etcd at which they were so.
    pub async fn list_in_pages(
        &mut self,
        prefix: &str,
        limit: i64,
    ) -> Result<(Vec<KeyValue>, i64), SessionError> {
        let mut attempts = 0;
        loop {
            attempts += 1;
            match self.try_list(prefix, limit).await {
                // A compaction between two pages: the revision of the first one is gone.
                Err(SessionError::Compacted) if attempts < LISTINGS => {}
                listed => return listed,
            }
        }
    }

    async fn try_list(
        &mut self,
        prefix: &str,
        limit: i64,
    ) -> Result<(Vec<KeyValue>, i64), SessionError> {
        let end = end_of(prefix);
        let mut page = self.page(prefix, &end, limit, None).await?;
        let mut entries = Vec::new();
        loop {
            let last = page.entries.last().map(|entry| entry.key.clone());
            entries.append(&mut page.entries);
            let Some(last) = last.filter(|_| page.has_more) else {
                return Ok((entries, page.revision));
            };
            page = self.page(&format!("{last}\0"), &end, limit, Some(page.revision)).await?;
        }
    }

    /// Makes all writes in one transaction, if all conditions hold.
    ///
    /// # Errors
    ///
    /// After [`SessionError::Unavailable`] it is unknown whether the writes were made, or still will be.
    pub async fn transact(
        &mut self,
        conditions: Vec<Condition>,
        writes: Vec<Write>,
    ) -> Result<TransactionOutcome, SessionError> {
        let compare = |condition| match condition {
            Condition::Modified { key, revision } => {
                Compare::mod_revision(key, CompareOp::Equal, revision)
            }
            Condition::Value { key, value } => Compare::value(key, CompareOp::Equal, value),
        };
        let operation = |write| match write {
            Write::Put { key, value, lease } => {
                let options = PutOptions::new().with_lease(lease.unwrap_or(0));
                TxnOp::put(key, value, Some(options))
            }
            Write::Delete { key } => TxnOp::delete(key, None),
        };
        let compares: Vec<_> = conditions.into_iter().map(compare).collect();
        let operations: Vec<_> = writes.into_iter().map(operation).collect();
        let transaction = Txn::new().when(compares).and_then(operations);
        let done = within(self.kv.txn(transaction)).await?;
        let done = done.map_err(|error| failed(error, "write"))?;
        let revision = done.header().map_or(0, etcd_client::ResponseHeader::revision);
        Ok(TransactionOutcome { succeeded: done.succeeded(), revision })
    }

    /// Grants a lease of so many seconds: keys under it end with it.
    pub async fn grant(&mut self, seconds: i64) -> Result<i64, SessionError> {
        let lease = within(self.lease.grant(seconds, None)).await?;
        Ok(lease.map_err(|error| failed(error, "write"))?.id())
    }

    /// Renews a lease to its full time.
    pub async fn keep_alive(&mut self, lease: i64) -> Result<(), SessionError> {
        let kept = within(async {
            let (mut keeper, mut answers) = self.lease.keep_alive(lease).await?;
            keeper.keep_alive().await?;
            answers.message().await
        });
        match kept.await?.map_err(|error| failed(error, "write"))? {
            Some(answer) if answer.ttl() > 0 => Ok(()),
            _ => Err(SessionError::Unavailable("the lease has ended".to_owned())),
        }
    }

    /// Revokes a lease, with the keys under it.
    pub async fn revoke(&mut self, lease: i64) -> Result<(), SessionError> {
        within(self.lease.revoke(lease)).await?.map_err(|error| failed(error, "write"))?;
        Ok(())
    }

    /// Writes `key` under a lease.
    pub async fn put(&mut self, key: &str, value: &[u8], lease: i64) -> Result<(), SessionError> {
        let options = PutOptions::new().with_lease(lease);
        within(self.kv.put(key, value, Some(options))).await?.map_err(|e| failed(e, "write"))?;
        Ok(())
    }

    /// Writes `key` under a lease, if the key does not exist. Returns whether it was written.
    pub async fn put_first(
        &mut self,
        key: &str,
        value: &[u8],
        lease: i64,
    ) -> Result<bool, SessionError> {
        let is_free = Condition::Modified { key: key.to_owned(), revision: 0 };
        self.put_if(is_free, key, value, lease).await
    }

    /// Writes `key` under a lease, if another key has this value. Returns whether it was written.
    pub async fn put_while(
        &mut self,
        (other, holds): (&str, &str),
        key: &str,
        value: &[u8],
        lease: i64,
    ) -> Result<bool, SessionError> {
        let holds = Condition::Value { key: other.to_owned(), value: holds.as_bytes().to_vec() };
        self.put_if(holds, key, value, lease).await
    }

    async fn put_if(
        &mut self,
        condition: Condition,
        key: &str,
        value: &[u8],
        lease: i64,
    ) -> Result<bool, SessionError> {
        let (key, value) = (key.to_owned(), value.to_vec());
        let put = Write::Put { key, value, lease: Some(lease) };
        Ok(self.transact(vec![condition], vec![put]).await?.succeeded)
    }

    /// Moves a pointer in one transaction: if `pointer` was last written at the revision `seen` (0: does not
    /// exist), it writes this value to it and to `also`, and takes the lease off the keys `leased`. Returns
    /// whether the pointer moved.
    pub async fn move_pointer(
        &mut self,
        (pointer, seen): (&str, i64),
        also: &str,
        value: &[u8],
        leased: &[String],
    ) -> Result<bool, SessionError> {
        let is_as_seen = Compare::mod_revision(pointer, CompareOp::Equal, seen);
        let mut changes = vec![TxnOp::put(pointer, value, None), TxnOp::put(also, value, None)];
        // A put that keeps the stored value, without a lease, takes the lease off the key.
        let off = || Some(PutOptions::new().with_ignore_value());
        changes.extend(leased.iter().map(|key| TxnOp::put(key.as_str(), "", off())));
        let done = within(self.kv.txn(Txn::new().when([is_as_seen]).and_then(changes))).await?;
        Ok(done.map_err(|error| failed(error, "write"))?.succeeded())
    }

    /// Removes one key and all keys with a prefix, in one transaction.
    pub async fn remove(&mut self, key: &str, prefix: &str) -> Result<(), SessionError> {
        let below = TxnOp::delete(prefix, Some(DeleteOptions::new().with_prefix()));
        let both = Txn::new().and_then([TxnOp::delete(key, None), below]);
        within(self.kv.txn(both)).await?.map_err(|error| failed(error, "write"))?;
        Ok(())
    }

    /// Watches `key` from the revision `from` of etcd on.
    pub async fn watch(&mut self, key: &str, from: i64) -> Result<Watch, SessionError> {
        let options = WatchOptions::new().with_start_revision(from).with_progress_notify();
        let stream = within(self.watch.watch(key, Some(options))).await?;
        Ok(Watch { stream: stream.map_err(|error| failed(error, "watch"))? })
    }

    /// Watches all keys with `prefix` from the revision `from` of etcd on.
    pub async fn watch_prefix(
        &mut self,
        prefix: &str,
        from: i64,
    ) -> Result<EventWatch, SessionError> {
        let options = WatchOptions::new().with_prefix().with_start_revision(from);
        let stream = within(self.watch.watch(prefix, Some(options.with_progress_notify()))).await?;
        Ok(EventWatch::new(stream.map_err(|error| failed(error, "watch"))?))
    }
}

impl Watch {
    /// Waits for a change of the key, or for a progress notification. Returns `false` when the watch has
    /// ended: the connection is lost, the member has no leader, or the start revision has been compacted.
    /// Cancel-safe.
    pub async fn changed(&mut self) -> bool {
        loop {
            match self.stream.message().await {
                Ok(Some(message)) if message.canceled() => return false,
                Ok(Some(message)) if message.created() => {}
                Ok(Some(_)) => return true,
                Ok(None) | Err(_) => return false,
            }
        }
    }
}

impl KeyValue {
    fn new(pair: etcd_client::KeyValue) -> Self {
        let modified = pair.mod_revision();
        let (key, value) = pair.into_key_value();
        Self { key: String::from_utf8_lossy(&key).into_owned(), value, modified }
    }
}

/// The first key after all keys with a prefix. A prefix ends with an ASCII character.
fn end_of(prefix: &str) -> String {
    let mut end = prefix.to_owned();
    let last = end.pop().and_then(|last| char::from_u32(u32::from(last) + 1));
    end.extend(last);
    end
}

async fn within<T>(work: impl Future<Output = T>) -> Result<T, SessionError> {
    timeout(PATIENCE, work).await.map_err(|_| {
        SessionError::Unavailable(format!("no answer within {} s", PATIENCE.as_secs()))
    })
}

/// Classifies an error of the client. The texts are those of etcd's `rpctypes/error.go`; some errors of
/// authentication have a code for other errors.
fn failed(error: Error, what: &'static str) -> SessionError {
    let Error::GRpcStatus(status) = error else {
        return SessionError::Unavailable(causes(&error));
    };
    let words = status.message().trim_start_matches("etcdserver: ").to_owned();
    match status.code() {
        Code::PermissionDenied => SessionError::Denied(what),
        Code::Unauthenticated => SessionError::Login(words),
        Code::InvalidArgument if words.contains("authentication failed") => {
            SessionError::Login(words)
        }
        Code::InvalidArgument if words.contains("user name") => SessionError::Login(words),
        Code::FailedPrecondition if words.contains("authentication is not enabled") => {
            SessionError::Login(words)
        }
        Code::OutOfRange if words.contains("compacted") => SessionError::Compacted,
        Code::ResourceExhausted if words.contains("space") => SessionError::Full(words),
        Code::Unavailable
        | Code::DeadlineExceeded
        | Code::Cancelled
        | Code::Unknown
        | Code::Internal => SessionError::Unavailable(match std::error::Error::source(&status) {
            Some(source) => format!("{words}: {}", causes(source)),
            None => words,
        }),
        _ => SessionError::Rejected(words),
    }
}

/// The text of an error with its causes: a transport error is useless without them.
fn causes(error: &dyn std::error::Error) -> String {
    let mut text = chain(error);
    // The settings name the files that TLS uses.
    if text.contains("invalid peer certificate") {
        text.push_str("; look at `ca` in the settings");
    } else if text.contains("fatal alert") {
        text.push_str("; look at `certificate` and `key` in the settings");
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn end_is_after_all_keys_with_the_prefix() {
        let end = end_of("/mesh/state/");
        assert_eq!(end, "/mesh/state0");
        assert!(*"/mesh/state/\u{10ffff}" < *end);
    }
}
