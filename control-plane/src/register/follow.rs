//! The task that follows the table of join records: what another control plane stores is shown here too.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::ProxyId;
use ironmesh_catalog::text::chain;
use ironmesh_store::TableChanges;
use tokio::time::sleep;
use tokio_util::sync::CancellationToken;

use super::Register;

/// The pause before a new watch, after one that failed.
const RETRY: Duration = Duration::from_secs(1);

impl Register {
    /// Follows the stored records until `shutdown`. A failed watch is begun again, with the current state.
    pub(crate) async fn follow(self: Arc<Self>, shutdown: CancellationToken) -> anyhow::Result<()> {
        let follow = async {
            loop {
                if let Err(reason) = self.follow_once().await {
                    tracing::debug!(reason, "the watch of join records has ended");
                }
                sleep(RETRY).await;
            }
        };
        tokio::select! {
            () = follow => Ok(()),
            () = shutdown.cancelled() => Ok(()),
        }
    }

    /// Follows the stored records until the watch fails.
    async fn follow_once(&self) -> Result<(), String> {
        let watch = tokio::task::block_in_place(|| self.table.watch());
        let mut watch = watch.map_err(|error| chain(&error))?;
        loop {
            let changes = watch.changed().await.map_err(|error| chain(&error))?;
            // Most changes are of this control plane, which shows them already.
            if !self.outdated(&changes).is_empty() {
                tokio::task::block_in_place(|| self.apply(&changes))?;
            }
        }
    }

    /// Reads the changed records that are not shown yet.
    pub(super) fn apply(&self, changes: &TableChanges) -> Result<(), String> {
        // Waits for a change that is stored and not yet shown.
        let _changing = self.changing.lock();
        self.reread(self.outdated(changes)).map_err(|error| chain(&error))
    }

    /// The proxies whose shown record has a different version.
    fn outdated(&self, changes: &TableChanges) -> Vec<ProxyId> {
        let records = self.records.lock();
        let is_shown = |id: &ProxyId, version| records.versions.get(id).copied() == version;
        let changed = changes
            .records
            .iter()
            .filter_map(|(key, version)| key.parse().ok().filter(|id| !is_shown(id, *version)));
        let mut outdated: Vec<ProxyId> = changed.collect();
        if changes.is_complete {
            let is_gone = |id: &&ProxyId| !changes.records.contains_key(&id.to_string());
            outdated.extend(records.versions.keys().filter(is_gone));
        }
        outdated
    }
}
