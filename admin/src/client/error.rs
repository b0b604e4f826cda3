//! The failures of admin API requests.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;
use std::time::Duration;

use super::LIMIT;
use crate::socket_path::SocketPathTooLong;

/// The failure of an admin API request.
#[derive(Debug, thiserror::Error)]
pub enum ClientError {
    /// Nothing listens, or this user may not connect.
    #[error("cannot reach the control plane at `{place}`: {advice}")]
    Unreachable {
        /// The socket, or the server.
        place: String,
        /// What it means, and what to do.
        advice: &'static str,
        /// The error of the system.
        #[source]
        source: io::Error,
    },
    /// The socket is gone, and a control plane answers at the admin port.
    #[error(
        "the admin socket `{}` is missing, but a control plane answers at {port}: if it uses this state folder, the folder was removed while it was running. Do NOT restart it, which would lose its certificate authority: see `ironmesh explain IM0702`",
        socket.display()
    )]
    SocketGone {
        /// The socket.
        socket: PathBuf,
        /// The port.
        port: SocketAddr,
    },
    /// The path of the socket is longer than the system allows.
    #[error(transparent)]
    PathTooLong(#[from] SocketPathTooLong),
    /// The socket accepts connections, and its process answers nothing: it hangs, or is stopped.
    #[error(
        "the control plane at `{place}` does not answer: its process accepts connections and has not answered /healthz for {} s; see its log and the load of its machine",
        LIMIT.as_secs()
    )]
    Silent {
        /// The socket, or the server.
        place: String,
    },
    /// The process accepts connections, and does not answer this request in time.
    #[error(
        "the control plane at `{place}` accepts connections and has not answered {request} within {} s; see its log and the load of its machine. A change may still take effect: check before you repeat it",
        limit.as_secs()
    )]
    Slow {
        /// The socket, or the server.
        place: String,
        /// The method and the path.
        request: String,
        /// How long the request was allowed to take.
        limit: Duration,
    },
    /// The connection broke.
    #[error(
        "the control plane did not answer: it closed the connection or sent an invalid response; see its log"
    )]
    Broken(#[source] Box<dyn std::error::Error + Send + Sync>),
    /// What it answered cannot be written.
    #[error("the answer of the control plane cannot be written")]
    Output(#[source] io::Error),
    /// The control plane rejected the request.
    #[error("{0}")]
    Rejected(String),
    /// The control plane failed, or is busy.
    #[error("{0}")]
    Failed(String),
}

impl ClientError {
    /// Whether the control plane gave no answer: it is not running, restarts or hangs.
    pub fn is_unreachable(&self) -> bool {
        matches!(
            self,
            Self::Unreachable { .. } | Self::Silent { .. } | Self::Slow { .. } | Self::Broken(_)
        )
    }
}

/// What the error of a connection to the socket means.
pub(super) fn advice_about_socket(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::PermissionDenied => {
            "this user may not use it: run this command as the owner of the state folder, or as a member of the group of \
             `group_socket`"
        }
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: `ironmesh serve` has stopped; see its log. Traffic goes on meanwhile"
        }
        _ => "is `ironmesh serve` running with this state folder? (`--config` names its settings)",
    }
}

/// What the error of a connection to a server on the network means.
pub(super) fn advice_about_server(source: &io::Error) -> &'static str {
    match source.kind() {
        io::ErrorKind::ConnectionRefused => {
            "nothing listens there: is `listen.api` set in its settings, and does it run? Traffic goes on meanwhile"
        }
        io::ErrorKind::InvalidData => {
            "TLS failed: it is not a control plane of the context's mesh, or its clock or this one is wrong"
        }
        io::ErrorKind::UnexpectedEof | io::ErrorKind::ConnectionReset => {
            "it closed the connection: check the address, the network and its firewall (`--server` names another); or it \
             blocks this address for a minute, after 20 failures such as a wrong token"
        }
        _ => "check the address, the network and its firewall (`--server` names another)",
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn closed_connection_may_be_that_of_a_blocked_address() {
        for kind in [io::ErrorKind::UnexpectedEof, io::ErrorKind::ConnectionReset] {
            assert!(advice_about_server(&kind.into()).contains("blocks this address"), "{kind}");
        }
        assert!(!advice_about_server(&io::ErrorKind::TimedOut.into()).contains("blocks"));
    }
}
