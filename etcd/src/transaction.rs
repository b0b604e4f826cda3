//! Transactions: writes that are made together, if conditions hold.

use std::fmt;

/// A condition of a transaction.
#[derive(Clone, PartialEq, Eq)]
pub enum Condition {
    /// The key was last written at this revision of etcd; 0: it does not exist.
    Modified {
        /// The key.
        key: String,
        /// The revision.
        revision: i64,
    },
    /// The key has this value.
    Value {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
    },
}

/// A write of a transaction. A transaction writes a key once at most.
#[derive(Clone, PartialEq, Eq)]
pub enum Write {
    /// Sets a key, without a lease or under one.
    Put {
        /// The key.
        key: String,
        /// The value.
        value: Vec<u8>,
        /// The lease, with which the key ends.
        lease: Option<i64>,
    },
    /// Removes a key, if it exists.
    Delete {
        /// The key.
        key: String,
    },
}

/// The answer to a transaction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct TransactionOutcome {
    /// Whether the conditions held, so that the writes were made.
    pub succeeded: bool,
    /// The revision of etcd of the answer: that of the writes, if they were made.
    pub revision: i64,
}

/// Values may be secret, so none is shown.
impl fmt::Debug for Condition {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Modified { key, revision } => write!(f, "{key} modified at {revision}"),
            Self::Value { key, .. } => write!(f, "{key} has a value"),
        }
    }
}

impl fmt::Debug for Write {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Put { key, value, .. } => write!(f, "put {key}: {} bytes", value.len()),
            Self::Delete { key } => write!(f, "delete {key}"),
        }
    }
}
