//! How a store records its sales: over one kept connection to the warehouse.

use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::task::AbortHandle;
use tokio::time::sleep;

use crate::ledger::{Ledger, LedgerError};
use crate::tally::{Outcome, Tally};

/// The part of a store that records. It ends when this is dropped.
#[derive(Debug)]
pub(crate) struct Records {
    tally: Arc<Tally>,
    opened: Arc<AtomicU64>,
    task: AbortHandle,
}

impl Records {
    /// Starts recording in the warehouse, which is at `address` as far as the store knows. Returns
    /// where sales are told.
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

    /// How many connections it has had so far: one, unless the first was ended.
    pub(crate) fn opened(&self) -> u64 {
        self.opened.load(Ordering::Relaxed)
    }
}

impl Drop for Records {
    fn drop(&mut self) {
        self.task.abort();
    }
}

/// A connection that was ended is opened again, and the sale under way is told once more: that is no
/// failure, as it is none in a real application.
async fn record(
    address: SocketAddr,
    mut sales: mpsc::Receiver<String>,
    tally: Arc<Tally>,
    opened: Arc<AtomicU64>,
) {
    let mut untold: Option<String> = None;
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
            let sale = if let Some(sale) = untold.take() {
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
                untold = Some(sale);
                sleep(PAUSE).await;
                break;
            }
            tally.record(Outcome::Recorded);
        }
    }
}

/// What it looks like to the caller when the warehouse cannot be reached.
pub(crate) fn outcome_of(error: &LedgerError) -> Outcome {
    match error {
        LedgerError::Refused => Outcome::Refused,
        LedgerError::Closed => Outcome::Closed,
        _ => Outcome::Failed,
    }
}

const MOST_WAITING: usize = 64;
const PAUSE: Duration = Duration::from_millis(250);
