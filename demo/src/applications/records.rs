//! The recording of a store's sales, over one kept connection to the warehouse.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::ledger::{Ledger, LedgerError};
use crate::tally::{Outcome, Tally};

/// The recording task of a store. Dropping it ends the task.
#[derive(Debug)]
pub(crate) struct Records {
    tally: Arc<Tally>,
    opened: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Records {
    /// Starts recording in the warehouse at `address`, and returns the queue for sales.
    pub(crate) fn open(address: SocketAddr) -> (Self, mpsc::Sender<String>) {
        let (sender, sales) = mpsc::channel(MOST_WAITING);
        let (tally, opened) = (Arc::<Tally>::default(), Arc::<AtomicU64>::default());
        let task = record(address, sales, Arc::clone(&tally), Arc::clone(&opened));
        let task = tokio::spawn(task).abort_handle();
        (Self { tally, opened, task }, sender)
    }

    pub(crate) fn tally(&self) -> &Arc<Tally> {
        &self.tally
    }

    /// The number of opened connections: one, unless the first was ended.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// Records sales. After the end of a connection it reconnects and repeats the pending sale, which counts as no failure:
/// a real application does the same.
async fn record(
    address: SocketAddr,
    mut sales: mpsc::Receiver<String>,
    tally: Arc<Tally>,
    opened: Arc<AtomicU64>,
) {
    let mut unrecorded: Option<String> = None;
    loop {
        let mut ledger = match Ledger::open(address).await {
            Ok(ledger) => ledger,
            Err(error) => {
                tally.record(outcome_of(&error));
                sleep(PAUSE).await;
                continue;
            }
        };
        opened.fetch_add(1, Ordering::Relaxed);
        loop {
            let sale = if let Some(sale) = unrecorded.take() {
                sale
            } else {
                tokio::select! {
                    sale = sales.recv() => match sale {
                        Some(sale) => sale,
                        None => return,
                    },
                    () = ledger.closed() => break,
                }
            };
            if ledger.record(&sale).await.is_err() {
                unrecorded = Some(sale);
                sleep(PAUSE).await;
                break;
            }
            tally.record(Outcome::Recorded);
        }
    }
}

/// The outcome for a caller that cannot reach the warehouse.
pub(crate) fn outcome_of(error: &LedgerError) -> Outcome {
    match error {
        LedgerError::Refused => Outcome::Refused,
        LedgerError::Closed => Outcome::Closed,
        _ => Outcome::Failed,
    }
}

const MOST_WAITING: usize = 64;
const PAUSE: Duration = Duration::from_millis(250);
