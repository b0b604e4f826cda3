//! The errors of releases, with the action to take.

use std::io;
use std::path::PathBuf;

use ironmesh_catalog::PolicyRevision;
use ironmesh_config_sources::FolderError;

/// The reason why a release cannot be read or made.
#[derive(Debug, thiserror::Error)]
pub(crate) enum ReleaseError {
    /// Nothing has been applied yet.
    #[error("there is no release yet: `ironmesh policy apply DIR` makes one")]
    Nothing,
    /// No release is the current one.
    #[error(
        "`{link}` is missing: `ironmesh policy rollback REV` selects one of the releases (`ironmesh policy revisions`)"
    )]
    NoCurrent { link: PathBuf },
    /// The link to the current release leads elsewhere.
    #[error(
        "`{link}` leads to `{target}`, which is not a release beside it: apply policy again (`ironmesh policy apply DIR`), or select a release (`ironmesh policy rollback REV`)"
    )]
    Dangling { link: PathBuf, target: PathBuf },
    /// A file is unreadable.
    #[error("`{path}` cannot be read")]
    Unreadable {
        path: PathBuf,
        #[source]
        source: io::Error,
    },
    /// The folder of a release is unreadable.
    #[error(transparent)]
    Folder(#[from] FolderError),
    /// A release does not have the content with which it was made.
    #[error(
        "the release `{path}` is damaged: {problem}; apply policy again (`ironmesh policy apply DIR`), or select another release (`ironmesh policy rollback REV`)"
    )]
    Damaged { path: PathBuf, problem: String },
    /// The paths or texts of documents do not come back from a folder as they were sent.
    #[error("{0}")]
    Rejected(String),
    /// The disk does not accept a release.
    #[error("cannot write the release {revision} to `{folder}`")]
    Unwritable {
        revision: PolicyRevision,
        folder: PathBuf,
        #[source]
        source: io::Error,
    },
}
