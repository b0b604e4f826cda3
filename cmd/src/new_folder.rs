//! A folder that is there whole, or not at all.

use std::io::{ErrorKind, Write};
use std::os::unix::fs::DirBuilderExt;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use fs_err::os::unix::fs::OpenOptionsExt;

/// A folder that is written beside its name and then renamed. Until then nothing of it is to be
/// seen, and if it never comes to that, nothing of it stays.
pub(crate) struct NewFolder {
    pub(crate) path: PathBuf,
    part: PathBuf,
    /// The folders above that were missing, the deepest first.
    made: Vec<PathBuf>,
    mode: u32,
    is_finished: bool,
}

impl NewFolder {
    /// Begins one at `path`, where nothing is yet; who may see into it is said by `mode`, less what the
    /// process's mask takes away.
    pub(crate) fn create(path: &Path, mode: u32) -> anyhow::Result<Self> {
        let path = std::path::absolute(path)?;
        let shown = path.display();
        let name = path.file_name().with_context(|| format!("`{shown}` names no folder"))?;
        // Envoy's bootstrap is text and has this path in it.
        let name = path.to_str().and_then(|_| name.to_str());
        let name =
            name.with_context(|| format!("`{shown}` is not in UTF-8: name another folder"))?;
        match fs_err::symlink_metadata(&path) {
            Ok(_) => {
                bail!("`{shown}` is there already: name a new folder, or remove it first")
            }
            Err(error) if error.kind() == ErrorKind::NotFound => {}
            Err(error) => return Err(error.into()),
        }
        let part = path.with_file_name(format!(".{name}.{}", std::process::id()));
        // What is made on the way to it goes again with it.
        let is_missing = |folder: &&Path| !folder.exists();
        let made = path.ancestors().skip(1).take_while(is_missing).map(Path::to_owned).collect();
        if let Some(parent) = path.parent() {
            fs_err::create_dir_all(parent)?;
        }
        let folder = Self { path, part, made, mode, is_finished: false };
        make(&folder.part, mode)?;
        Ok(folder)
    }

    /// Makes a folder in it; the one above is there.
    pub(crate) fn make(&self, name: &Path) -> anyhow::Result<()> {
        make(&self.part.join(name), self.mode)
    }

    /// Takes a folder out of it again, with all that is in there.
    pub(crate) fn remove(&self, name: &str) -> anyhow::Result<()> {
        Ok(fs_err::remove_dir_all(self.part.join(name))?)
    }

    pub(crate) fn write(&self, name: &Path, content: &str, mode: u32) -> anyhow::Result<()> {
        let mut options = fs_err::OpenOptions::new();
        options.write(true).create_new(true);
        options.mode(mode);
        let mut file = options.open(self.part.join(name))?;
        file.write_all(content.as_bytes())?;
        Ok(())
    }

    /// Gives it its name, when all that was written is on the disk.
    pub(crate) fn finish(mut self) -> anyhow::Result<()> {
        // Once for all files: a thousand proxies have six thousand, and the disk takes its time.
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
            for folder in &self.made {
                drop(fs_err::remove_dir(folder));
            }
        }
    }
}

fn make(folder: &Path, mode: u32) -> anyhow::Result<()> {
    let made = std::fs::DirBuilder::new().mode(mode).create(folder);
    made.with_context(|| format!("cannot make `{}`", folder.display()))
}
