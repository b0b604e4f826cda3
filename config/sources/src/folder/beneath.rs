//! Opens files below a folder and nowhere else, even if a path component becomes a symbolic link meanwhile.
//!
//! It walks from directory to directory without following links, which every Linux allows. `openat2` would
//! save system calls, but would still need this walk as a fallback where a sandbox forbids it.

use std::fs::File;
use std::io;
use std::os::fd::{AsFd, OwnedFd};
use std::path::{Component, Path};

use rustix::fs::{AtFlags, FileType, Mode, OFlags, openat, statat};

/// An open folder: it stays the same when its path later leads elsewhere.
#[derive(Debug)]
pub(super) struct Root(OwnedFd);

/// The reason why a file is not opened.
#[derive(Debug)]
pub(super) enum NotOpened {
    /// It is a directory, a pipe, a socket or a device.
    NotAFile,
    /// A part of its path is a symbolic link, or leads up. (The listing has resolved all links.)
    Link,
    /// The system reports an error.
    Io(io::Error),
}

impl Root {
    /// Opens the folder at `path`.
    pub(super) fn open(path: &Path) -> io::Result<Self> {
        Ok(Self(rustix::fs::open(path, DIRECTORY, Mode::empty())?))
    }

    /// Opens the regular file at `below`, a relative path without links.
    pub(super) fn file(&self, below: &Path) -> Result<File, NotOpened> {
        let mut names = Vec::new();
        for part in below.components() {
            let Component::Normal(name) = part else { return Err(NotOpened::Link) };
            names.push(name);
        }
        let Some((file, folders)) = names.split_last() else { return Err(NotOpened::NotAFile) };
        let mut opened: Option<OwnedFd> = None;
        for folder in folders {
            let above = opened.as_ref().unwrap_or(&self.0);
            opened = Some(openat(above, *folder, DIRECTORY | OFlags::NOFOLLOW, Mode::empty())?);
        }
        let above = opened.as_ref().unwrap_or(&self.0).as_fd();
        // Opening a device may have effects, so its type is checked first. Opening a pipe that replaces a
        // file would wait for the pipe's writer.
        let is_file = |mode: u32| match FileType::from_raw_mode(mode) {
            FileType::RegularFile => Ok(()),
            FileType::Symlink => Err(NotOpened::Link),
            _ => Err(NotOpened::NotAFile),
        };
        is_file(statat(above, *file, AtFlags::SYMLINK_NOFOLLOW)?.st_mode)?;
        let flags = OFlags::RDONLY | OFlags::NONBLOCK | OFlags::NOFOLLOW | OFlags::CLOEXEC;
        let opened = openat(above, *file, flags, Mode::empty())?;
        is_file(rustix::fs::fstat(&opened)?.st_mode)?;
        Ok(opened.into())
    }
}

const DIRECTORY: OFlags = OFlags::PATH.union(OFlags::DIRECTORY).union(OFlags::CLOEXEC);

impl From<rustix::io::Errno> for NotOpened {
    fn from(error: rustix::io::Errno) -> Self {
        // A link in place of a directory is no directory (ENOTDIR).
        match error {
            rustix::io::Errno::LOOP | rustix::io::Errno::NOTDIR => Self::Link,
            other => Self::Io(other.into()),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::io::Read as _;
    use std::os::unix::fs::symlink;

    use fs_err as fs;

    use super::*;

    #[test]
    fn root_opens_files_below_it_and_follows_no_link() {
        let place = tempfile::tempdir().unwrap();
        let at = |name: &str| place.path().join(name);
        fs::create_dir_all(at("root/a/b")).unwrap();
        fs::write(at("root/a/b/c.toml"), "inside").unwrap();
        fs::write(at("secret"), "outside").unwrap();
        symlink("../../secret", at("root/a/link.toml")).unwrap();
        symlink("b/c.toml", at("root/a/inside.toml")).unwrap();
        symlink("..", at("root/up")).unwrap();
        let root = Root::open(&at("root")).unwrap();
        let mut text = String::new();
        root.file(Path::new("a/b/c.toml")).unwrap().read_to_string(&mut text).unwrap();
        assert_eq!(text, "inside");
        let outside = at("secret");
        for path in
            ["a/link.toml", "a/inside.toml", "up/secret", "../secret", outside.to_str().unwrap()]
        {
            let rejected = root.file(Path::new(path)).unwrap_err();
            assert!(matches!(rejected, NotOpened::Link), "{path}: {rejected:?}");
        }
        assert!(matches!(root.file(Path::new("a/b")), Err(NotOpened::NotAFile)));
        assert!(matches!(root.file(Path::new("")), Err(NotOpened::NotAFile)));
        assert!(matches!(root.file(Path::new("a/none")), Err(NotOpened::Io(_))));
        // A folder that replaces this one is a different folder.
        fs::rename(at("root"), at("old")).unwrap();
        symlink("/", at("root")).unwrap();
        assert!(root.file(Path::new("a/b/c.toml")).is_ok());
    }
}
