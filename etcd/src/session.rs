//! A session with one endpoint of etcd, and its requests. Only this module names etcd's client.

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

use crate::error::{EtcdError, SessionError};
use crate::options::EtcdOptions;

/// The most time for connecting and for each request. A cluster without a leader delays its answers for
/// longer.
const PATIENCE: Duration = Duration::from_secs(3);

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
#[derive(Debug, PartialEq, Eq)]
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

impl fmt::Debug for Watch {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("Watch").finish_non_exhaustive()
    }
}

impl Credentials {
    pub(crate) fn read(options: &EtcdOptions) -> Result<Self, EtcdError> {
        let file =
            |key, path: &Path| fs_err::read(path).map_err(|source| EtcdError::File { key, source });
        let text = |key, path: &Path| {
            fs_err::read_to_string(path).map_err(|source| EtcdError::File { key, source })
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
            kv: client.kv_client(),
            lease: client.lease_client(),
            watch: client.watch_client(),
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

    /// Lists all keys with `prefix`, the last written first, and the revision of etcd of the answer.
    pub async fn list(&mut self, prefix: &str) -> Result<(Vec<KeyValue>, i64), SessionError> {
        let answer = within(self.kv.get(prefix, Some(GetOptions::new().with_prefix()))).await?;
        let mut answer = answer.map_err(|error| failed(error, "read"))?;
        let revision = answer.header().map_or(0, etcd_client::ResponseHeader::revision);
        let mut entries: Vec<_> = answer.take_kvs().into_iter().map(KeyValue::new).collect();
        entries.sort_by_key(|entry| std::cmp::Reverse(entry.modified));
        Ok((entries, revision))
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
        let is_free = Compare::create_revision(key, CompareOp::Equal, 0);
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
        self.put_if(Compare::value(other, CompareOp::Equal, holds), key, value, lease).await
    }

    async fn put_if(
        &mut self,
        condition: Compare,
        key: &str,
        value: &[u8],
        lease: i64,
    ) -> Result<bool, SessionError> {
        let put = TxnOp::put(key, value, Some(PutOptions::new().with_lease(lease)));
        let done = within(self.kv.txn(Txn::new().when([condition]).and_then([put]))).await?;
        Ok(done.map_err(|error| failed(error, "write"))?.succeeded())
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
