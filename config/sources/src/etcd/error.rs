//! What may be wrong with a policy in etcd, in words that say what to do.

use ironmesh_catalog::Finding;
use ironmesh_config_language::codes;
use ironmesh_etcd::{EtcdError, SessionError};

/// Why policy cannot be had from etcd, or brought there.
#[derive(Debug, thiserror::Error)]
pub enum PolicyError {
    /// etcd cannot be used.
    #[error(transparent)]
    Etcd(#[from] EtcdError),
    /// There is no policy below the prefix.
    #[error(
        "nothing has been pushed to `{prefix}` in etcd yet: `ironmesh policy push PATH` does that"
    )]
    Nothing {
        /// The prefix.
        prefix: String,
    },
    /// What is there was not put there by a push.
    #[error(transparent)]
    Damaged(#[from] DamagedPush),
    /// The revision that was asked for is not there.
    #[error(
        "etcd keeps no policy whose revision is or begins with `{0}`: see `ironmesh policy revisions`"
    )]
    UnknownRevision(String),
    /// Several revisions begin so.
    #[error("the revisions {0} begin so: give more of the one that you mean")]
    SeveralRevisions(String),
}

/// What is wrong with a key that no push wrote.
#[derive(Debug, thiserror::Error)]
#[error("`{key}` in etcd {problem}: `ironmesh policy push PATH` puts a whole policy there again")]
pub struct DamagedPush {
    /// Which key.
    pub key: String,
    /// What is wrong with it.
    pub problem: String,
}

/// Why a part of a policy cannot be read.
#[derive(Debug)]
pub(super) enum ReadError {
    Session(SessionError),
    Damaged(DamagedPush),
}

impl From<SessionError> for ReadError {
    fn from(error: SessionError) -> Self {
        Self::Session(error)
    }
}

impl PolicyError {
    /// The same as a finding, where it is about what is stored there.
    pub fn finding(&self) -> Option<Finding> {
        let Self::Damaged(DamagedPush { key, problem }) = self else { return None };
        let message = format!("`{key}` in etcd {problem}");
        let finding = Finding::error(codes::DAMAGED_PUSH, None, message);
        Some(finding.help("push a whole policy: `ironmesh policy push PATH`"))
    }
}
