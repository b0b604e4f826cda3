//! The sockets of the API on this machine: that of the owner of the state folder, and that of a group of operators.
//!
//! The kernel decides who connects: the mode of a socket and of its folder are all of its access control.

#[cfg(test)]
mod tests;

use std::io;
use std::os::unix::fs::{FileTypeExt as _, MetadataExt as _, PermissionsExt as _};
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};

use axum::serve::Listener;
use ironmesh_listener::{WRITE_LIMIT, WriteDeadline};
use tokio::net::UnixListener;

/// The failure to create a socket.
#[derive(Debug, thiserror::Error)]
pub enum BindError {
    /// The system does not create it.
    #[error("cannot create the socket `{path}`")]
    System {
        /// The path of the socket.
        path: PathBuf,
        /// What the system reports.
        source: io::Error,
    },
    /// The folder of the socket for a group is missing.
    #[error(
        "the folder `{folder}` of `group_socket` is missing: `install -d -m 2750 -o USER -g GROUP {folder}`, with the user \
         of the control plane; a folder below `/run` also needs a file in `/etc/tmpfiles.d`, which creates it at each boot"
    )]
    NoFolder {
        /// The folder.
        folder: PathBuf,
    },
    /// The folder of the socket for a group gives access to others, or to no group.
    #[error(
        "the folder `{folder}` of `group_socket` has the mode {mode:o}: its group reads, so it needs the setgid bit, and \
         neither writes by the group nor access for others: `install -d -m 2750 -o USER -g GROUP {folder}`, with the user of the control plane"
    )]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// Its permission bits.
        mode: u32,
    },
    /// A different user can replace the socket of a group: in its folder, or by a folder above it.
    #[error(
        "`{folder}`, which has the `group_socket`, {why}: a user who is neither root nor that of the control plane could \
         replace the socket; use a folder below `/run`"
    )]
    Replaceable {
        /// The folder.
        folder: PathBuf,
        /// Its owner, or its mode.
        why: String,
    },
    /// A different process has this path.
    #[error(
        "a process answers on the socket `{path}` already: stop it, or set a different `group_socket` in the settings"
    )]
    InUse {
        /// The path of the socket.
        path: PathBuf,
    },
}

/// The admin socket, whose connections have the limit of writes.
pub(super) struct SocketListener(pub(super) UnixListener);

impl Listener for SocketListener {
    type Io = WriteDeadline<tokio::net::UnixStream>;
    type Addr = tokio::net::unix::SocketAddr;

    async fn accept(&mut self) -> (Self::Io, Self::Addr) {
        let (stream, address) = Listener::accept(&mut self.0).await;
        (WriteDeadline::new(stream, WRITE_LIMIT), address)
    }

    fn local_addr(&self) -> io::Result<Self::Addr> {
        self.0.local_addr()
    }
}

/// Creates the socket at `path`, for its owner alone. An existing file there is the socket of a dead process: the
/// caller holds the lock of the state folder.
///
/// # Errors
///
/// Fails where the system does not create the socket.
pub fn bind_socket(path: &Path) -> Result<UnixListener, BindError> {
    // The folder has mode 0700 already, so that no other user can connect in between.
    bind(path, 0o600)
}

/// Creates the socket at `path` for the group of its folder. The setgid bit of the folder gives the socket this group, so
/// that the control plane needs no right to change groups, and is no member of it.
///
/// # Errors
///
/// Fails if the folder is missing, if others than the group may enter the folder, if another user may replace the socket, if a process answers at `path`, or where the system does not
/// create the socket.
pub fn bind_group_socket(path: &Path) -> Result<UnixListener, BindError> {
    let system = |source| BindError::System { path: path.to_owned(), source };
    let folder = path.parent().unwrap_or_else(|| Path::new("/"));
    let metadata = match fs_err::metadata(folder) {
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            return Err(BindError::NoFolder { folder: folder.to_owned() });
        }
        found => found.map_err(system)?,
    };
    let mode = metadata.mode() & 0o7777;
    if !metadata.is_dir() || mode & 0o2000 == 0 || mode & 0o027 != 0 {
        return Err(BindError::Folder { folder: folder.to_owned(), mode });
    }
    check_owners(path, folder, rustix::process::geteuid().as_raw())?;
    // No lock belongs to this path.
    if UnixStream::connect(path).is_ok() {
        return Err(BindError::InUse { path: path.to_owned() });
    }
    bind(path, 0o660)
}

/// Rejects a folder in which a user other than `own` and root may replace the socket. Whoever owns a folder, or writes to it,
/// may rename what is in it; with the sticky bit, only the owner of that.
fn check_owners(path: &Path, folder: &Path, own: u32) -> Result<(), BindError> {
    let system = |source| BindError::System { path: path.to_owned(), source };
    let resolved = fs_err::canonicalize(folder).map_err(system)?;
    let absolute = std::path::absolute(folder).map_err(system)?;
    // Also the folders of links on the way.
    for folder in resolved.ancestors().chain(absolute.ancestors()) {
        let metadata = fs_err::metadata(folder).map_err(system)?;
        let (uid, mode) = (metadata.uid(), metadata.mode() & 0o7777);
        let why = if uid != own && uid != 0 {
            format!("belongs to the user with uid {uid}")
        } else if mode & 0o002 != 0 && mode & 0o1000 == 0 {
            format!("has the mode {mode:o}, by which all users write")
        } else {
            continue;
        };
        return Err(BindError::Replaceable { folder: folder.to_owned(), why });
    }
    Ok(())
}

fn bind(path: &Path, mode: u32) -> Result<UnixListener, BindError> {
    let bind = || {
        match fs_err::symlink_metadata(path) {
            Ok(found) if found.file_type().is_socket() => fs_err::remove_file(path)?,
            Ok(_) => return Err(io::Error::new(io::ErrorKind::AlreadyExists, "it is no socket")),
            Err(error) if error.kind() == io::ErrorKind::NotFound => {}
            Err(error) => return Err(error),
        }
        let listener = UnixListener::bind(path)?;
        fs_err::set_permissions(path, std::fs::Permissions::from_mode(mode))?;
        Ok(listener)
    };
    bind().map_err(|source| BindError::System { path: path.to_owned(), source })
}
