//! The errors of policy in etcd, with the action to take.

use ironmesh_catalog::Finding;
use ironmesh_config_language::codes;
use ironmesh_etcd::{EtcdError, SessionError};

/// The reason why policy cannot be read from etcd, or pushed to it.
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
    /// A key does not have the content that a push writes.
    #[error(transparent)]
    Damaged(#[from] DamagedPush),
    /// The requested revision does not exist.
    #[error("etcd has no policy revision that begins with `{0}`: see `ironmesh policy revisions`")]
    UnknownRevision(String),
    /// Several revisions begin with the requested prefix.
    #[error("several revisions begin so: {0}; give more characters")]
    SeveralRevisions(String),
}

/// The damage of a key that no push wrote.
#[derive(Debug, thiserror::Error)]
#[error("`{key}` in etcd {problem}: `ironmesh policy push PATH` puts a whole policy there again")]
pub struct DamagedPush {
    /// The key.
    pub key: String,
    /// The damage.
    pub problem: String,
}

/// The reason why a part of a policy cannot be read.
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
    /// The error as a finding, if it concerns the stored policy.
    pub fn finding(&self) -> Option<Finding> {
        let Self::Damaged(DamagedPush { key, problem }) = self else { return None };
        let message = format!("`{key}` in etcd {problem}");
        let finding = Finding::error(codes::DAMAGED_PUSH, None, message);
        Some(finding.help("push a whole policy: `ironmesh policy push PATH`"))
    }
}
