//! Stands between a client and etcd, and holds back the step of a push that counts.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// What only a manifest says, which goes to etcd in the transaction that moves the pointer.
const MANIFEST: &[u8] = br#"{"format":"#;

#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    transactions: Arc<HeldTransactions>,
    _task: AbortOnDropHandle<()>,
}

/// Where transactions wait.
#[derive(Debug)]
struct HeldTransactions {
    /// How many have come.
    held: AtomicUsize,
    /// For each, in the order of their coming: one permit for itself, and one for what comes behind it on its
    /// connection.
    permits: [Semaphore; 2],
}

impl Relay {
    /// In front of the etcd that listens at `target`, for two transactions.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((target.ip(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let permits = [(); 2].map(|()| Semaphore::new(0));
        let transactions = Arc::new(HeldTransactions { held: AtomicUsize::new(0), permits });
        let of_connections = Arc::clone(&transactions);
        let task = tokio::spawn(async move {
            // They last as long as the relay does.
            let mut open = Vec::new();
            loop {
                let (client, _) = listener.accept().await.unwrap();
                let (client, to_client) = client.into_split();
                let (etcd, to_etcd) = TcpStream::connect(target).await.unwrap().into_split();
                let transactions = Arc::clone(&of_connections);
                open.push(AbortOnDropHandle::new(tokio::spawn(forward_requests(
                    client,
                    to_etcd,
                    transactions,
                ))));
                open.push(AbortOnDropHandle::new(tokio::spawn(forward_answers(etcd, to_client))));
            }
        });
        Self { address, transactions, _task: AbortOnDropHandle::new(task) }
    }

    /// Where clients are to connect.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// How many transactions are held back, or were.
    pub(crate) fn held(&self) -> usize {
        self.transactions.held.load(Ordering::SeqCst)
    }

    /// Lets a transaction go on. What its client has sent since stays where it is.
    pub(crate) fn release_alone(&self, transaction: usize) {
        self.transactions.permits[transaction].add_permits(1);
    }

    /// Lets a transaction go on, and all that comes behind it.
    pub(crate) fn release(&self, transaction: usize) {
        self.transactions.permits[transaction].add_permits(2);
    }
}

/// Hands on what the client asks, but for a transaction and what comes behind it.
async fn forward_requests(
    mut client: OwnedReadHalf,
    mut etcd: OwnedWriteHalf,
    transactions: Arc<HeldTransactions>,
) {
    let mut bytes = vec![0; 64 * 1024];
    loop {
        let count = client.read(&mut bytes).await.unwrap_or(0);
        let part = &bytes[..count];
        let is_transaction = part.windows(MANIFEST.len()).any(|window| window == MANIFEST);
        let gate = is_transaction
            .then(|| &transactions.permits[transactions.held.fetch_add(1, Ordering::SeqCst)]);
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
        if count == 0 || etcd.write_all(part).await.is_err() {
            return;
        }
        if let Some(gate) = gate {
            gate.acquire().await.unwrap().forget();
        }
    }
}

/// Hands on what etcd answers. A client that has given up is no reason to leave etcd.
async fn forward_answers(mut etcd: OwnedReadHalf, mut client: OwnedWriteHalf) {
    let _ = copy(&mut etcd, &mut client).await;
}
