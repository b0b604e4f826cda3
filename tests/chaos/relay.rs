//! A relay between a control plane and etcd, on the machine of the control plane, that delays bytes.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::mpsc;
use tokio::time::{Instant, sleep_until};
use tokio_util::sync::{CancellationToken, DropGuard};

/// The relay of a machine. Dropping it ends its connections.
#[derive(Debug)]
pub(crate) struct Relay {
    delays: [Arc<AtomicU64>; 2],
    _stop: DropGuard,
}

/// The first of the ports at which relays listen.
const PORT: u16 = 23790;

impl Relay {
    /// Starts a relay to each of the members. `enter` moves a thread to the machine.
    pub(crate) fn start(
        enter: impl Fn() + Send + 'static,
        members: impl IntoIterator<Item = SocketAddr>,
    ) -> Self {
        let delays: [Arc<AtomicU64>; 2] = Default::default();
        let stop = CancellationToken::new();
        let runtime = tokio::runtime::Builder::new_current_thread().enable_all().build().unwrap();
        for (member, port) in members.into_iter().zip(PORT..) {
            runtime.spawn(accept(port, member, delays.clone()));
        }
        let stopped = stop.clone();
        std::thread::spawn(move || {
            enter();
            runtime.block_on(stopped.cancelled());
        });
        Self { delays, _stop: stop.drop_guard() }
    }

    /// The URLs for the control plane of the machine, which begin with its own member.
    pub(crate) fn endpoints(machine: u8) -> Vec<String> {
        let mut all: Vec<_> =
            (PORT..PORT + 3).map(|port| format!("https://127.0.0.1:{port}")).collect();
        all.rotate_left(usize::from(machine));
        all
    }

    /// Delays what arrives from now on.
    pub(crate) fn set_delays(&self, to_etcd: Duration, from_etcd: Duration) {
        for (delay, new) in self.delays.iter().zip([to_etcd, from_etcd]) {
            delay.store(u64::try_from(new.as_millis()).unwrap(), Ordering::Relaxed);
        }
    }
}

async fn accept(port: u16, member: SocketAddr, [to_etcd, from_etcd]: [Arc<AtomicU64>; 2]) {
    let listener = TcpListener::bind(("127.0.0.1", port)).await.unwrap();
    loop {
        let (client, _) = listener.accept().await.unwrap();
        let delays = [to_etcd.clone(), from_etcd.clone()];
        tokio::spawn(async move {
            let [to_etcd, from_etcd] = delays;
            let Ok(etcd) = TcpStream::connect(member).await else { return };
            let ((client, to_client), (etcd, to_member)) = (client.into_split(), etcd.into_split());
            tokio::join!(forward(client, to_member, to_etcd), forward(etcd, to_client, from_etcd));
        });
    }
}

/// Forwards bytes in order, each piece at its time. The end of one side is forwarded as well.
async fn forward(mut from: OwnedReadHalf, mut to: OwnedWriteHalf, delay: Arc<AtomicU64>) {
    let (sender, mut pieces) = mpsc::channel::<(Instant, Vec<u8>)>(64);
    let read = async move {
        let mut buffer = vec![0; 16 * 1024];
        while let Ok(length @ 1..) = from.read(&mut buffer).await {
            let due = Instant::now() + Duration::from_millis(delay.load(Ordering::Relaxed));
            if sender.send((due, buffer[..length].to_vec())).await.is_err() {
                return;
            }
        }
    };
    let write = async move {
        while let Some((due, piece)) = pieces.recv().await {
            sleep_until(due).await;
            if to.write_all(&piece).await.is_err() {
                return;
            }
        }
    };
    tokio::join!(read, write);
}
