//! A folder that appears complete or not at all.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fs_err::os::unix::fs::OpenOptionsExt;

/// A folder under construction, which is renamed to its final path when it is complete.
///
/// Until then it has a hidden temporary name. If it is dropped unfinished, it is removed.
pub(crate) struct NewFolder {
    /// The final path.
    pub(crate) path: PathBuf,
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
    pub(crate) fn create(path: &Path, mode: u32) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let shown = path.display();
        let name = path.file_name().with_context(|| format!("`{shown}` names no folder"))?;
        // Envoy's bootstrap contains this path as text.
        let name = path.to_str().and_then(|_| name.to_str());
        let name =
            name.with_context(|| format!("`{shown}` is not UTF-8: choose a different folder"))?;
        match fs_err::symlink_metadata(&path) {
            Ok(_) => {
                bail!("`{shown}` exists already: choose a new folder, or remove this one first")
            }
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

    /// Creates a folder inside, whose parent must exist.
    pub(crate) fn create_subfolder(&self, name: &Path) -> anyhow::Result<()> {
        create_folder(&self.part.join(name), self.mode)
    }

    /// Removes a folder inside, with its content.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<()> {
        Ok(fs_err::remove_dir_all(self.part.join(name))?)
    }

    /// Writes a new file inside, with this mode.
    pub(crate) fn write(&self, name: &Path, content: &str, mode: u32) -> anyhow::Result<()> {
        let mut options = fs_err::OpenOptions::new();
        options.write(true).create_new(true);
        options.mode(mode);
        let mut file = options.open(self.part.join(name))?;
        file.write_all(content.as_bytes())?;
        Ok(())
    }

    /// Syncs the content to disk, and renames the folder to its final path.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        // One sync for all files: a thousand proxies have six thousand files, and syncing each would be slow.
        rustix::fs::syncfs(fs_err::File::open(&self.part)?)?;
        fs_err::rename(&self.part, &self.path)?;
        self.is_finished = true;
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

fn create_folder(folder: &Path, mode: u32) -> anyhow::Result<()> {
    let created = std::fs::DirBuilder::new().mode(mode).create(folder);
    created.with_context(|| format!("cannot create `{}`", folder.display()))
}
