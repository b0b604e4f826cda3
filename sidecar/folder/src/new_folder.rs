//! A folder that appears complete or not at all.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt;

/// The reason why a new folder, or a file in it, was not created.
#[derive(Debug, thiserror::Error)]
pub enum NewFolderError {
    /// The path ends with no name.
    #[error("`{}` names no folder", .0.display())]
    Nameless(PathBuf),
    /// The path is not text, as which a bootstrap contains it.
    #[error("`{}` is not UTF-8: choose a different folder", .0.display())]
    NotUtf8(PathBuf),
    /// The path exists.
    #[error("`{}` exists already: choose a new folder, or remove this one first", .0.display())]
    Exists(PathBuf),
    /// A folder cannot be created.
    #[error("cannot create `{}`", .0.display())]
    Create(PathBuf, #[source] io::Error),
    /// A file or a folder cannot be read or written.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// A folder under construction, which is renamed to its final path when it is complete.
///
/// Until then it has a hidden temporary name. If it is dropped unfinished, it is removed.
#[derive(Debug)]
pub struct NewFolder {
    /// The final path.
    path: PathBuf,
    /// The temporary path.
    part: PathBuf,
    /// The parent folders that were missing and were created, the deepest first.
    created_parents: Vec<PathBuf>,
    /// The mode of each created folder, before the process's umask.
    mode: u32,
    is_finished: bool,
}

impl NewFolder {
    /// Creates the temporary folder for `path`, which must not exist yet.
    pub fn create(path: &Path, mode: u32) -> Result<Self, NewFolderError> {
        let path = std::path::absolute(path)?;
        let name = path.file_name().ok_or_else(|| NewFolderError::Nameless(path.clone()))?;
        // Envoy's bootstrap contains this path as text.
        let name = path.to_str().and_then(|_| name.to_str());
        let name = name.ok_or_else(|| NewFolderError::NotUtf8(path.clone()))?;
        match fs_err::symlink_metadata(&path) {
            Ok(_) => return Err(NewFolderError::Exists(path)),
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let part = path.with_file_name(format!(".{name}.{}", std::process::id()));
        // An unfinished folder is removed together with the parents created for it.
        let is_missing = |folder: &&Path| !folder.exists();
        let missing = path.ancestors().skip(1).take_while(is_missing).map(Path::to_owned);
        let created_parents: Vec<_> = missing.collect();
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent)?;
        }
        let folder = Self { path, part, created_parents, mode, is_finished: false };
        create_folder(&folder.part, mode)?;
        Ok(folder)
    }

    /// The final path.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Creates a folder inside, whose parent must exist.
    pub fn create_subfolder(&self, name: &Path) -> Result<(), NewFolderError> {
        create_folder(&self.part.join(name), self.mode)
    }

    /// Removes a folder inside, with its content.
    pub fn remove(&self, name: &str) -> Result<(), NewFolderError> {
        Ok(fs_err::remove_dir_all(self.part.join(name))?)
    }

    /// Writes a new file inside, with this mode.
    pub fn write(&self, name: &Path, content: &str, mode: u32) -> Result<(), NewFolderError> {
        let mut options = fs_err::OpenOptions::new();
        options.write(true).create_new(true);
        options.mode(mode);
        let mut file = options.open(self.part.join(name))?;
        file.write_all(content.as_bytes())?;
        Ok(())
    }

    /// Writes new files inside, with this mode, and creates the folders that they need.
    pub fn write_all<'a>(
        &self,
        files: impl Iterator<Item = (&'a Path, &'a str)> + Clone,
        mode: u32,
    ) -> Result<(), NewFolderError> {
        // Sorted by path, so that each folder comes after its parent.
        let folders: BTreeSet<_> =
            files.clone().flat_map(|(path, _)| path.ancestors().skip(1)).collect();
        for inner in folders.into_iter().filter(|path| !path.as_os_str().is_empty()) {
            self.create_subfolder(inner)?;
        }
        for (path, content) in files {
            self.write(path, content, mode)?;
        }
        Ok(())
    }

    /// Syncs the content to disk, and renames the folder to its final path.
    pub fn finish(mut self) -> Result<(), NewFolderError> {
        // One sync for all files: a thousand proxies have seven thousand files, and syncing each would be slow.
        rustix::fs::syncfs(fs_err::File::open(&self.part)?).map_err(io::Error::from)?;
        fs_err::rename(&self.part, &self.path)?;
        self.is_finished = true;
        // Without it, a power cut could undo the rename after the enrollment was reported.
        if let Some(parent) = self.path.parent() {
            fs_err::File::open(parent)?.sync_all()?;
        }
        Ok(())
    }
}

impl Drop for NewFolder {
    fn drop(&mut self) {
        if !self.is_finished {
            drop(fs_err::remove_dir_all(&self.part));
            for folder in &self.created_parents {
                drop(fs_err::remove_dir(folder));
            }
        }
    }
}

fn create_folder(folder: &Path, mode: u32) -> Result<(), NewFolderError> {
    let created = std::fs::DirBuilder::new().mode(mode).create(folder);
    created.map_err(|error| NewFolderError::Create(folder.to_owned(), error))
}
