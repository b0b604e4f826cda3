//! A TCP relay in front of etcd that can withhold etcd's answers, and end its connections.

use std::net::SocketAddr;
use std::sync::Arc;

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::watch;
use tokio_util::task::AbortOnDropHandle;

/// What the relay does with its connections.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Mode {
    Forward,
    /// etcd receives requests, and its answers are withheld.
    WithholdAnswers,
    /// Connections end, and new ones too.
    Refuse,
    /// After the next connection, nothing listens.
    ForwardOne,
}

#[derive(Debug)]
pub(crate) struct Answers {
    address: SocketAddr,
    mode: Arc<watch::Sender<Mode>>,
    _task: AbortOnDropHandle<()>,
}

impl Answers {
    /// Starts a relay in front of the etcd at `target`.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let mut listener = TcpListener::bind((target.ip(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let mode = Arc::new(watch::Sender::new(Mode::Forward));
        let modes = Arc::clone(&mode);
        let task = tokio::spawn(async move {
            // The connections last as long as the relay.
            let mut open = Vec::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let accepted_in = *modes.borrow();
                if accepted_in == Mode::Refuse {
                    continue;
                }
                let Ok(etcd) = TcpStream::connect(target).await else { continue };
                let relayed = relay(client, etcd, modes.subscribe());
                open.push(AbortOnDropHandle::new(tokio::spawn(relayed)));
                if accepted_in == Mode::ForwardOne {
                    drop(listener);
                    let mut modes = modes.subscribe();
                    let _ = modes.wait_for(|mode| *mode != Mode::ForwardOne).await;
                    listener = TcpListener::bind(address).await.unwrap();
                }
            }
        });
        Self { address, mode, _task: AbortOnDropHandle::new(task) }
    }

    /// The URL for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    pub(crate) fn set(&self, mode: Mode) {
        self.mode.send_replace(mode);
    }
}

async fn relay(client: TcpStream, etcd: TcpStream, mut modes: watch::Receiver<Mode>) {
    let ((mut from_client, to_client), (from_etcd, mut to_etcd)) =
        (client.into_split(), etcd.into_split());
    let is_withheld = modes.clone();
    tokio::select! {
        _ = copy(&mut from_client, &mut to_etcd) => {}
        () = forward_answers(from_etcd, to_client, is_withheld) => {}
        _ = modes.wait_for(|mode| *mode == Mode::Refuse) => {}
    }
}

async fn forward_answers(
    mut etcd: OwnedReadHalf,
    mut client: OwnedWriteHalf,
    mut modes: watch::Receiver<Mode>,
) {
    let mut buffer = vec![0; 16 * 1024];
    while let Ok(length @ 1..) = etcd.read(&mut buffer).await {
        // Withheld answers are lost: their connection ends before the relay forwards again.
        if *modes.borrow_and_update() == Mode::WithholdAnswers {
            let _ = modes.wait_for(|mode| *mode != Mode::WithholdAnswers).await;
            return;
        }
        if client.write_all(&buffer[..length]).await.is_err() {
            return;
        }
    }
}
