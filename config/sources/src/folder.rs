//! The policy folder as a source: reads the documents below it, and says when to read them again.
//!
//! It never says what the documents mean, and never decides when they come into force.

mod beneath;
mod commit;
mod layout;
mod listing;
mod reading;
#[cfg(test)]
mod tests;
mod watch;

use std::io;
use std::path::{Path, PathBuf};

use ironmesh_catalog::Finding;

use ironmesh_config_language::Document;
use ironmesh_config_language::{Loaded, Loader};

pub use commit::{CommitError, commit_of};
pub use reading::read_folder;
pub use watch::{FolderWatch, WatchError, watch_folder};

/// What is in a policy folder.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The documents that could be read, by path.
    pub documents: Vec<Document>,
    /// What could not be read.
    pub findings: Vec<Finding>,
}

/// Reads and checks all documents of the folder at `path`, or the one document there.
pub fn load_folder(path: &Path) -> Result<Loaded, FolderError> {
    let Folder { documents, findings } = read_folder(path)?;
    Ok(Loader::default().load(documents, findings))
}

/// Why a policy folder could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// There is nothing at the path.
    #[error("there is no policy folder at `{path}`: create it, or name another")]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// There is something else at the path.
    #[error("`{path}` is neither a folder nor a `.toml` or `.yaml` file: name one of these")]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The folder is not ours to read.
    #[error("the policy folder `{path}` may not be read: allow this user to read it")]
    NoPermission {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
    /// Anything else.
    #[error("the policy folder `{path}` could not be read")]
    Io {
        /// The path.
        path: PathBuf,
        /// What the system said.
        #[source]
        source: io::Error,
    },
}

impl FolderError {
    fn new(path: &Path, source: io::Error) -> Self {
        let path = path.to_owned();
        match source.kind() {
            io::ErrorKind::NotFound => Self::Missing { path },
            io::ErrorKind::NotADirectory => Self::NotAFolder { path },
            io::ErrorKind::PermissionDenied => Self::NoPermission { path, source },
            _ => Self::Io { path, source },
        }
    }
}
