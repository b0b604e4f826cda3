//! A change of a key.

use std::fmt;

/// A change of a key, as a watch reports it.
#[derive(Clone, PartialEq, Eq)]
pub struct KeyEvent {
    /// The key.
    pub key: String,
    /// The revision of etcd of the change. All changes of one transaction have the same.
    pub modified: i64,
    /// The new value; none if the key was removed.
    pub value: Option<Vec<u8>>,
}

/// The value may be secret, so only its length is shown.
impl fmt::Debug for KeyEvent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("KeyEvent")
            .field("key", &self.key)
            .field("modified", &self.modified)
            .field("bytes", &self.value.as_ref().map(Vec::len))
            .finish()
    }
}

/// What a watch of a prefix reports.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum WatchNews {
    /// All changes of one revision of etcd: one transaction.
    Events(Vec<KeyEvent>),
    /// There were no changes up to this revision of etcd.
    Progress(i64),
    /// The first revision of the watch has been compacted, so changes are missing: read everything again.
    Compacted,
    /// The watch has ended, for this reason: the connection is lost, or the member has no leader.
    Ended(String),
}
