//! The user behind a request to the admin socket.

use axum::extract::connect_info::Connected;
use axum::serve::IncomingStream;
use tokio::net::UnixListener;

/// The user who sent a request to the admin socket, as the kernel reports it, not as the request states.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operator {
    /// The user's id; none if the kernel does not report it.
    pub uid: Option<u32>,
}

impl Connected<IncomingStream<'_, UnixListener>> for Operator {
    fn connect_info(stream: IncomingStream<'_, UnixListener>) -> Self {
        Self { uid: stream.io().peer_cred().ok().map(|peer| peer.uid()) }
    }
}
