//! A TCP relay between a client and etcd that holds back the commit of a push.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use tokio::io::{AsyncReadExt, AsyncWriteExt, copy};
use tokio::net::tcp::{OwnedReadHalf, OwnedWriteHalf};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Semaphore;
use tokio_util::task::AbortOnDropHandle;

/// Bytes that only a manifest has, which goes to etcd in the transaction that moves the pointer.
const MANIFEST: &[u8] = br#"{"format":"#;

#[derive(Debug)]
pub(crate) struct Relay {
    address: SocketAddr,
    transactions: Arc<HeldTransactions>,
    _task: AbortOnDropHandle<()>,
}

/// The transactions that the relay holds back.
#[derive(Debug)]
struct HeldTransactions {
    /// The number of held transactions so far.
    held: AtomicUsize,
    /// For each, in order of arrival: one permit for the transaction, and one for what follows on
    /// its connection.
    permits: [Semaphore; 2],
}

impl Relay {
    /// Starts a relay in front of the etcd at `target`, for two transactions.
    pub(crate) async fn start(target: SocketAddr) -> Self {
        let listener = TcpListener::bind((target.ip(), 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let permits = [(); 2].map(|()| Semaphore::new(0));
        let transactions = Arc::new(HeldTransactions { held: AtomicUsize::new(0), permits });
        let of_connections = Arc::clone(&transactions);
        let task = tokio::spawn(async move {
            // The connections last as long as the relay.
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

    /// The URL for clients.
    pub(crate) fn endpoint(&self) -> String {
        format!("http://{}", self.address)
    }

    /// The number of transactions that are or were held back.
    pub(crate) fn held(&self) -> usize {
        self.transactions.held.load(Ordering::SeqCst)
    }

    /// Releases a transaction, but not what its client has sent since.
    pub(crate) fn release_alone(&self, transaction: usize) {
        self.transactions.permits[transaction].add_permits(1);
    }

    /// Releases a transaction and all that follows it.
    pub(crate) fn release(&self, transaction: usize) {
        self.transactions.permits[transaction].add_permits(2);
    }
}

/// Forwards requests, and holds back transactions with all that follows them.
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

/// Forwards answers. A client that gives up does not end the connection to etcd.
async fn forward_answers(mut etcd: OwnedReadHalf, mut client: OwnedWriteHalf) {
    let _ = copy(&mut etcd, &mut client).await;
}
