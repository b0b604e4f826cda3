//! The path of a socket, whose length the system limits.

use std::path::{Path, PathBuf};

/// The maximum length of the path of a Unix socket on Linux, in bytes: `sun_path` has 108, and the last one is zero
/// (unix(7)).
const MAX_LENGTH: usize = 107;

/// The path of a socket is longer than the system allows.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "the path of a socket has {length} bytes, and Linux allows {MAX_LENGTH}: `{path}`; set `state` in the settings, or \
     `group_socket` if that is the socket, to a shorter path"
)]
pub struct SocketPathTooLong {
    path: PathBuf,
    length: usize,
}

/// Checks that a socket can be bound at `path`, or connected to.
pub fn check_socket_path(path: &Path) -> Result<(), SocketPathTooLong> {
    let length = path.as_os_str().len();
    if length > MAX_LENGTH {
        return Err(SocketPathTooLong { path: path.to_owned(), length });
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use std::os::unix::net::UnixListener;

    use super::*;

    #[test]
    fn longest_accepted_path_is_the_longest_the_system_binds() {
        let folder = tempfile::tempdir().unwrap();
        let path = |length: usize| {
            let rest = length - folder.path().as_os_str().len() - 1;
            folder.path().join("x".repeat(rest))
        };
        let (longest, too_long) = (path(MAX_LENGTH), path(MAX_LENGTH + 1));
        assert_eq!(check_socket_path(&longest), Ok(()));
        UnixListener::bind(&longest).unwrap();
        let error = check_socket_path(&too_long).unwrap_err().to_string();
        assert!(error.contains("has 108 bytes, and Linux allows 107"), "{error}");
        assert!(error.contains(too_long.to_str().unwrap()), "{error}");
        UnixListener::bind(&too_long).unwrap_err();
    }
}
