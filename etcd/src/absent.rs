//! In place of `session.rs` where this is built without etcd: there are no credentials, so there is no
//! session.

#![expect(
    clippy::unused_async,
    clippy::needless_pass_by_ref_mut,
    reason = "the same signatures as where there is a session"
)]

use crate::error::{EtcdError, SessionError};
use crate::options::EtcdOptions;

pub(crate) enum Credentials {}

/// A connection to one endpoint.
#[derive(Debug)]
pub enum Session {}

/// A watch of one key.
#[derive(Debug)]
pub enum Watch {}

/// A key and its value.
#[derive(Debug, PartialEq, Eq)]
pub struct KeyValue {
    /// The key.
    pub key: String,
    /// Its value.
    pub value: Vec<u8>,
    /// The revision of etcd that it was written at last.
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

    /// What `key` holds, and the revision of etcd at which it does: now, or `at` that revision.
    pub async fn get(
        &mut self,
        _: &str,
        _: Option<i64>,
    ) -> Result<(Option<KeyValue>, i64), SessionError> {
        match *self {}
    }

    /// All keys that begin with `prefix`, those written last first, and the revision of etcd at which they
    /// are so.
    pub async fn list(&mut self, _: &str) -> Result<(Vec<KeyValue>, i64), SessionError> {
        match *self {}
    }

    /// A lease of so many seconds: what is written under it goes with it.
    pub async fn grant(&mut self, _: i64) -> Result<i64, SessionError> {
        match *self {}
    }

    /// Has a lease last as long again as at its beginning.
    pub async fn keep_alive(&mut self, _: i64) -> Result<(), SessionError> {
        match *self {}
    }

    /// Ends a lease, and what was written under it.
    pub async fn revoke(&mut self, _: i64) -> Result<(), SessionError> {
        match *self {}
    }

    /// Writes `key` under a lease.
    pub async fn put(&mut self, _: &str, _: &[u8], _: i64) -> Result<(), SessionError> {
        match *self {}
    }

    /// Writes `key` under a lease, if it is not there. Returns whether it was so.
    pub async fn put_first(&mut self, _: &str, _: &[u8], _: i64) -> Result<bool, SessionError> {
        match *self {}
    }

    /// Writes `key` under a lease, if another key holds this. Returns whether it was so.
    pub async fn put_while(
        &mut self,
        _: (&str, &str),
        _: &str,
        _: &[u8],
        _: i64,
    ) -> Result<bool, SessionError> {
        match *self {}
    }

    /// In one transaction: if `pointer` was written last at the revision `seen` (0: is not there), gives it
    /// and `also` this value, and takes the lease off the keys `leased`. Returns whether it was so.
    pub async fn move_pointer(
        &mut self,
        _: (&str, i64),
        _: &str,
        _: &[u8],
        _: &[String],
    ) -> Result<bool, SessionError> {
        match *self {}
    }

    /// Removes one key and all keys that begin with a prefix, together.
    pub async fn remove(&mut self, _: &str, _: &str) -> Result<(), SessionError> {
        match *self {}
    }

    /// Watches `key` from the revision `from` of etcd on.
    pub async fn watch(&mut self, _: &str, _: i64) -> Result<Watch, SessionError> {
        match *self {}
    }
}

impl Watch {
    /// Waits for a change of the key, or for a sign of progress. `false` when the watch has ended: the connection
    /// is lost, the member has no leader, or the revision at which the watch began has been compacted. May be
    /// cancelled without losing anything.
    pub async fn changed(&mut self) -> bool {
        match *self {}
    }
}
