//! The file of an export: for its owner alone, and there as a whole or not at all.

use std::io::{self, Write};
use std::path::{Path, PathBuf};

use crate::key::unique_name;
use crate::private_file;

/// A new file. Dropping it without [`ExportFile::finish`] removes it.
#[derive(Debug)]
pub struct ExportFile {
    file: fs_err::File,
    draft: PathBuf,
    path: PathBuf,
}

/// The file of an export cannot be written.
#[derive(Debug, thiserror::Error)]
pub enum ExportFileError {
    /// There is a file of this name.
    #[error("the file exists already, and an export never replaces one: choose a different name: `{}`", .0.display())]
    Exists(PathBuf),
    /// The file cannot be written.
    #[error("cannot write the export")]
    Unwritable(#[source] io::Error),
}

impl ExportFile {
    /// Prepares the file `path`, which does not exist.
    ///
    /// # Errors
    ///
    /// Fails if it exists, or if no file can be created beside it.
    pub fn create(path: &Path) -> Result<Self, ExportFileError> {
        if fs_err::symlink_metadata(path).is_ok() {
            return Err(ExportFileError::Exists(path.to_owned()));
        }
        let unique =
            unique_name().ok_or_else(|| unwritable(io::Error::other("no random bytes")))?;
        let draft = private_file::draft_of(path, &unique);
        let file = private_file::create_file(&draft).map_err(unwritable)?;
        Ok(Self { file, draft, path: path.to_owned() })
    }

    /// Gives the written file its name, durably.
    ///
    /// # Errors
    ///
    /// Fails if a file of this name was created meanwhile, or the disk fails.
    pub fn finish(self) -> Result<u64, ExportFileError> {
        self.file.sync_all().map_err(unwritable)?;
        let bytes = self.file.metadata().map_err(unwritable)?.len();
        private_file::publish_new(&self.draft, &self.path).map_err(|error| match error.kind() {
            io::ErrorKind::AlreadyExists => ExportFileError::Exists(self.path.clone()),
            _ => unwritable(error),
        })?;
        Ok(bytes)
    }
}

impl Write for ExportFile {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write(bytes)
    }

    fn flush(&mut self) -> io::Result<()> {
        self.file.flush()
    }
}

impl Drop for ExportFile {
    fn drop(&mut self) {
        // After `finish` there is none.
        let _ = fs_err::remove_file(&self.draft);
    }
}

fn unwritable(error: io::Error) -> ExportFileError {
    ExportFileError::Unwritable(error)
}
