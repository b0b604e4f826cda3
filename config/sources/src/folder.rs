//! The policy folder as a source: reads its documents, and reports when to read them again.
//!
//! It never interprets the documents, and never decides when they become active.

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

pub use commit::{CommitError, author_of, commit_of};
pub use reading::read_folder;
pub use watch::{FolderWatch, WatchError, watch_folder};

/// The content of a policy folder.
#[derive(Debug, Clone)]
pub struct Folder {
    /// The documents that could be read, by path.
    pub documents: Vec<Document>,
    /// The findings of files that could not be read.
    pub findings: Vec<Finding>,
}

/// Reads and checks all documents of the folder at `path`, or the one document there.
pub fn load_folder(path: &Path) -> Result<Loaded, FolderError> {
    let Folder { documents, findings } = read_folder(path)?;
    Ok(Loader::default().load(documents, findings))
}

/// The reason why a policy folder could not be read at all.
#[derive(Debug, thiserror::Error)]
pub enum FolderError {
    /// Nothing exists at the path.
    #[error(
        "there is no policy folder at `{path}`: create it, or set `policy` to a different folder"
    )]
    Missing {
        /// The path.
        path: PathBuf,
    },
    /// The path is neither a folder nor a file.
    #[error("`{path}` is neither a folder nor a `.toml` or `.yaml` file: name one of these")]
    NotAFolder {
        /// The path.
        path: PathBuf,
    },
    /// The control plane may not read the folder.
    #[error("this user may not read the policy folder `{path}`: grant it read permission")]
    NoPermission {
        /// The path.
        path: PathBuf,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// Any other error.
    #[error("the policy folder `{path}` could not be read")]
    Io {
        /// The path.
        path: PathBuf,
        /// The error of the system.
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
