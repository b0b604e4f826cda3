//! Replaces `session.rs` in a build without etcd: there are no credentials, so there is no session.

#![expect(
    clippy::unused_async,
    clippy::needless_pass_by_ref_mut,
    reason = "the same signatures as where there is a session"
)]

use crate::error::{EtcdError, SessionError};
use crate::key_event::WatchNews;
use crate::options::EtcdOptions;
use crate::pages::Page;
use crate::transaction::{Condition, TransactionOutcome, Write};

pub(crate) enum Credentials {}

/// A connection to one endpoint.
#[derive(Debug)]
pub enum Session {}

/// A watch of one key.
#[derive(Debug)]
pub enum Watch {}

/// A watch of all keys with a prefix.
#[derive(Debug)]
pub enum EventWatch {}

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

impl Credentials {
    pub(crate) fn read(_: &EtcdOptions) -> Result<Self, EtcdError> {
        Err(EtcdError::NotBuiltIn)
    }
}

impl Session {
    pub(crate) async fn open(_: &str, credentials: Credentials) -> Result<Self, SessionError> {
        match credentials {}
    }

    /// Reads `key`, and the revision of etcd of the answer: the newest one, or `at` that revision.
    pub async fn get(
        &mut self,
        _: &str,
        _: Option<i64>,
    ) -> Result<(Option<KeyValue>, i64), SessionError> {
        match *self {}
    }

    /// Reads `key` as this member has it, which may be outdated. It needs no leader and no quorum, so its answer tells of
    /// permissions also during an outage of others.
    pub async fn get_stale(&mut self, _: &str) -> Result<Option<KeyValue>, SessionError> {
        match *self {}
    }

    /// Reads at most `limit` keys from `from` up to `end`, exclusively, in their order: as they are, or were `at` a
    /// revision of etcd.
    pub async fn page(
        &mut self,
        _: &str,
        _: &str,
        _: i64,
        _: Option<i64>,
    ) -> Result<Page, SessionError> {
        match *self {}
    }

    /// Lists all keys with `prefix` in their order, so many at once, and the revision of etcd at which they were so.
    pub async fn list_in_pages(
        &mut self,
        _: &str,
        _: i64,
    ) -> Result<(Vec<KeyValue>, i64), SessionError> {
        match *self {}
    }

    /// Makes all writes in one transaction, if all conditions hold.
    pub async fn transact(
        &mut self,
        _: Vec<Condition>,
        _: Vec<Write>,
    ) -> Result<TransactionOutcome, SessionError> {
        match *self {}
    }

    /// Watches all keys with `prefix` from the revision `from` of etcd on.
    pub async fn watch_prefix(&mut self, _: &str, _: i64) -> Result<EventWatch, SessionError> {
        match *self {}
    }

    /// Lists all keys with `prefix`, the last written first, and the revision of etcd at which they were so.
    pub async fn list(&mut self, _: &str) -> Result<(Vec<KeyValue>, i64), SessionError> {
        match *self {}
    }

    /// Grants a lease of so many seconds: keys under it end with it.
    pub async fn grant(&mut self, _: i64) -> Result<i64, SessionError> {
        match *self {}
    }

    /// Renews a lease to its full time.
    pub async fn keep_alive(&mut self, _: i64) -> Result<(), SessionError> {
        match *self {}
    }

    /// Revokes a lease, with the keys under it.
    pub async fn revoke(&mut self, _: i64) -> Result<(), SessionError> {
        match *self {}
    }

    /// Writes `key` under a lease.
    pub async fn put(&mut self, _: &str, _: &[u8], _: i64) -> Result<(), SessionError> {
        match *self {}
    }

    /// Writes `key` under a lease, if the key does not exist. Returns whether it was written.
    pub async fn put_first(&mut self, _: &str, _: &[u8], _: i64) -> Result<bool, SessionError> {
        match *self {}
    }

    /// Writes `key` under a lease, if another key has this value. Returns whether it was written.
    pub async fn put_while(
        &mut self,
        _: (&str, &str),
        _: &str,
        _: &[u8],
        _: i64,
    ) -> Result<bool, SessionError> {
        match *self {}
    }

    /// Moves a pointer in one transaction: if `pointer` was last written at the revision `seen` (0: does not
    /// exist), it writes this value to it and to `also`, and takes the lease off the keys `leased`. Returns
    /// whether the pointer moved.
    pub async fn move_pointer(
        &mut self,
        _: (&str, i64),
        _: &str,
        _: &[u8],
        _: &[String],
    ) -> Result<bool, SessionError> {
        match *self {}
    }

    /// Removes one key and all keys with a prefix, in one transaction.
    pub async fn remove(&mut self, _: &str, _: &str) -> Result<(), SessionError> {
        match *self {}
    }

    /// Watches `key` from the revision `from` of etcd on.
    pub async fn watch(&mut self, _: &str, _: i64) -> Result<Watch, SessionError> {
        match *self {}
    }
}

impl Watch {
    /// Waits for a change of the key, or for a progress notification. Returns `false` when the watch has
    /// ended: the connection is lost, the member has no leader, or the start revision has been compacted.
    /// Cancel-safe.
    pub async fn changed(&mut self) -> bool {
        match *self {}
    }
}

impl EventWatch {
    /// Waits for the changes of the next revision of etcd, or for news of the watch itself. Cancel-safe.
    pub async fn next(&mut self) -> WatchNews {
        match *self {}
    }
}
