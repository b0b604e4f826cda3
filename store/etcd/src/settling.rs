//! What became of a commit whose answer was lost.
//!
//! Such a commit is never sent again blindly: it may have been stored, or may still be. The head tells which. This
//! module does no IO.

use crate::batch::PreparedCommit;
use crate::head::{Head, RECENT};

/// What became of a commit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    /// It was stored.
    Stored,
    /// It was not stored, and never will be: the head that it expects was replaced.
    Lost,
    /// It was not stored, and may still be. A fence ends that.
    Undecided,
    /// So many commits were made since that the head cannot tell.
    Unknown,
}

/// What became of `commit`, by a head that was read after it was sent, and the revision of etcd of that head.
pub(crate) fn outcome(commit: &PreparedCommit, head: &Head, modified: i64) -> Outcome {
    if head.includes(commit.head.commit) {
        return Outcome::Stored;
    }
    if modified == commit.expected {
        return Outcome::Undecided;
    }
    let commits_since = head.revision.saturating_sub(commit.head.revision);
    if commits_since < RECENT as u64 { Outcome::Lost } else { Outcome::Unknown }
}
