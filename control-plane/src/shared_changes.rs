//! What other control planes of the mesh have stored, for the reconciler to read again.
//!
//! It collects which parts of the shared state have changed; it reads none of them. A mesh with an embedded store has one
//! control plane, and nothing to follow.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::text::chain;
use ironmesh_store::{MeshChanges, MeshState, RecordError};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

/// The pause before a new watch, after one that failed.
const RETRY: Duration = Duration::from_secs(1);

/// The parts of the shared state that have changed since the reconciler read them.
#[derive(Debug, Default)]
pub(crate) struct SharedChanges {
    unread: Mutex<MeshChanges>,
    news: watch::Sender<()>,
}

impl SharedChanges {
    /// Wakes the reconciler.
    pub(crate) fn changes(&self) -> watch::Receiver<()> {
        self.news.subscribe()
    }

    /// What has changed since the last call.
    pub(crate) fn take(&self) -> MeshChanges {
        std::mem::take(&mut self.unread.lock())
    }

    /// Notes that parts have changed.
    pub(crate) fn note(&self, changes: MeshChanges) {
        self.unread.lock().merge(changes);
        self.news.send_replace(());
    }

    /// Follows the shared state until `shutdown`. A failed watch is begun again, with the current state.
    pub(crate) async fn follow(
        self: Arc<Self>,
        state: Arc<MeshState>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let follow = async {
            loop {
                if let Err(error) = self.follow_once(&state).await {
                    let reason = chain(&error);
                    tracing::debug!(reason, "the watch of the shared state has ended");
                }
                sleep(RETRY).await;
            }
        };
        tokio::select! {
            () = follow => Ok(()),
            () = shutdown.cancelled() => Ok(()),
        }
    }

    async fn follow_once(&self, state: &MeshState) -> Result<(), RecordError> {
        let mut watch = state.watch()?;
        loop {
            let changes = watch.changed().await?;
            self.note(changes);
        }
    }
}
