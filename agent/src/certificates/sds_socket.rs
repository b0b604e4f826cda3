//! The socket on which Envoy asks for service certificates: who may open it.

use std::path::Path;

use ironmesh_sidecar::envoy::certificates_socket;
use tokio::net::{UnixListener, UnixStream};

use crate::error::AgentError;
use crate::socket::bind_for_own_user;

/// Binds the socket in the folder of the proxy.
pub(super) fn bind(folder: &Path) -> Result<UnixListener, AgentError> {
    bind_for_own_user(certificates_socket(folder))
}

/// Whether the peer is a process of the agent's user or of root. The mode of the socket says the same; a process that was
/// started before a change of the mode, or on a file system without modes, is refused here.
pub(super) fn is_own_user(stream: &UnixStream) -> bool {
    let own = rustix::process::geteuid().as_raw();
    match stream.peer_cred() {
        Ok(peer) if may_connect(peer.uid(), own) => true,
        Ok(peer) => {
            let (uid, action) = (peer.uid(), "the connection is closed");
            tracing::warn!(uid, action, "another user asks for service certificates");
            false
        }
        Err(error) => {
            tracing::warn!(reason = %error, action = "the connection is closed", "user of a connection is unknown");
            false
        }
    }
}

fn may_connect(uid: u32, own: u32) -> bool {
    uid == own || uid == 0
}

#[cfg(test)]
mod tests {
    use std::os::unix::fs::PermissionsExt as _;

    use super::*;

    #[test]
    fn only_own_user_and_root_may_connect() {
        assert!(may_connect(1000, 1000) && may_connect(0, 1000));
        assert!(!may_connect(1001, 1000) && !may_connect(1000, 0));
    }

    #[tokio::test]
    async fn socket_of_a_killed_agent_is_replaced_and_private() {
        let folder = tempfile::tempdir().unwrap();
        drop(bind(folder.path()).unwrap());
        let _second = bind(folder.path()).unwrap();
        let path = certificates_socket(folder.path());
        let mode = fs_err::metadata(path).unwrap().permissions().mode();
        assert_eq!(mode & 0o777, 0o600);
        let missing = bind(&folder.path().join("missing")).unwrap_err().to_string();
        assert!(missing.contains("sds.sock"), "{missing}");
    }
}
