//! Files and folders that only their owner may read, and that appear whole or not at all.
//!
//! It never interprets their content.

use std::io;
use std::os::unix::fs::{DirBuilderExt, MetadataExt, PermissionsExt};
use std::path::{Path, PathBuf};

use fs_err::os::unix::fs::OpenOptionsExt;

/// The permission bits of other users.
const OTHERS: u32 = 0o077;

/// Creates `folder` and its missing ancestors, for its owner alone.
pub(crate) fn create_folder(folder: &Path) -> io::Result<()> {
    std::fs::DirBuilder::new().recursive(true).mode(0o700).create(folder)
}

/// Creates the new file `path`, for its owner alone.
pub(crate) fn create_file(path: &Path) -> io::Result<fs_err::File> {
    fs_err::OpenOptions::new().read(true).write(true).create_new(true).mode(0o600).open(path)
}

/// Creates the file `path`, for its owner alone, in place of one that an interrupted write left.
pub(crate) fn create_or_replace_file(path: &Path) -> io::Result<fs_err::File> {
    match fs_err::remove_file(path) {
        Err(error) if error.kind() != io::ErrorKind::NotFound => Err(error),
        _ => create_file(path),
    }
}

/// The permissions of `path`, if they give other users access.
pub(crate) fn insecure_permissions(path: &Path) -> io::Result<Option<u32>> {
    let mode = fs_err::metadata(path)?.permissions().mode() & 0o7777;
    Ok((mode & OTHERS != 0).then_some(mode))
}

/// Removes other users' access to `path`.
pub(crate) fn tighten(path: &Path) -> io::Result<()> {
    let mut permissions = fs_err::metadata(path)?.permissions();
    permissions.set_mode(permissions.mode() & !OTHERS);
    fs_err::set_permissions(path, permissions)
}

/// A name beside `path` for a draft of its content. Concurrent starts choose different names, so that none
/// publishes the other's partial content.
pub(crate) fn draft_of(path: &Path, unique: &str) -> PathBuf {
    let mut name = path.as_os_str().to_owned();
    name.push(format!(".{unique}.new"));
    PathBuf::from(name)
}

/// Gives the finished `draft` the name `path`, durably, and removes the draft's own name.
///
/// It makes a link instead of a rename: if a concurrent start was first, its file stays, and this draft is
/// removed.
pub(crate) fn publish(draft: &Path, path: &Path) -> io::Result<()> {
    let linked = match fs_err::hard_link(draft, path) {
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists => Ok(()),
        other => other,
    };
    fs_err::remove_file(draft)?;
    linked?;
    sync_folder_of(path)
}

/// The same, and fails if there is a file at `path`.
pub(crate) fn publish_new(draft: &Path, path: &Path) -> io::Result<()> {
    fs_err::hard_link(draft, path)?;
    fs_err::remove_file(draft)?;
    sync_folder_of(path)
}

/// Gives the finished `draft` the name `path`, durably, in place of an earlier file.
pub(crate) fn replace(draft: &Path, path: &Path) -> io::Result<()> {
    fs_err::rename(draft, path)?;
    sync_folder_of(path)
}

/// Gives `path` the owner of `folder`, if root has written it: the control plane runs as a user of its own, and commands may
/// run as root.
pub(crate) fn give_to_owner_of(folder: &Path, path: &Path) -> io::Result<()> {
    if !rustix::process::geteuid().is_root() {
        return Ok(());
    }
    let owner = fs_err::metadata(folder)?;
    fs_err::os::unix::fs::chown(path, Some(owner.uid()), Some(owner.gid()))
}

fn sync_folder_of(path: &Path) -> io::Result<()> {
    match path.parent() {
        // The name is durable only after its folder is synced.
        Some(folder) if !folder.as_os_str().is_empty() => fs_err::File::open(folder)?.sync_all(),
        _ => Ok(()),
    }
}
