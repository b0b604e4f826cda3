//! Retries of resources that clients NACKed for reasons local to their machines: with backoff, until the client ACKs
//! or policy compiles to a new version (docs/decisions/0052). Pushes nothing itself.

use std::collections::BTreeMap;
use std::time::Duration;

use ironmesh_xds_server::ClientKey;
use ironmesh_xds_wire::Version;
use tokio::time::Instant;

use super::ResourceKey;

/// The pause before the first retry. A restarting process frees its port within this time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause: a push of one resource to one proxy costs nothing at this rate.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The pending retries.
#[derive(Debug, Default)]
pub(in crate::reconciler) struct Retries {
    by_client: BTreeMap<ClientKey, ClientRetries>,
}

#[derive(Debug)]
struct ClientRetries {
    /// The count of the client's process starts.
    beginnings: u64,
    names: BTreeMap<ResourceKey, Retry>,
}

#[derive(Debug)]
struct Retry {
    version: Version,
    at: Instant,
    pause: Duration,
}

impl Retries {
    /// Replaces the retries of a client by those of these versions. A known version keeps its backoff, unless the
    /// client's process has restarted since.
    pub(super) fn follow(
        &mut self,
        client: &ClientKey,
        beginnings: u64,
        local: Vec<(ResourceKey, Version)>,
        now: Instant,
    ) {
        let old = self.by_client.remove(client).filter(|old| old.beginnings == beginnings);
        let mut old = old.map(|old| old.names).unwrap_or_default();
        let retry = |(name, version): (ResourceKey, Version)| {
            let known = old.remove(&name).filter(|known| known.version == version);
            let first = Retry { version, at: now + FIRST_PAUSE, pause: FIRST_PAUSE };
            (name, known.unwrap_or(first))
        };
        let names: BTreeMap<_, _> = local.into_iter().map(retry).collect();
        if !names.is_empty() {
            self.by_client.insert(ClientKey::clone(client), ClientRetries { beginnings, names });
        }
    }

    /// Forgets the retries of a client. Its next stream begins with the first pause.
    pub(super) fn forget(&mut self, client: &str) {
        self.by_client.remove(client);
    }

    /// The resources to push again now; their next pauses are twice as long.
    pub(in crate::reconciler) fn take_due(
        &mut self,
        now: Instant,
    ) -> Vec<(ClientKey, Vec<ResourceKey>)> {
        let mut due = Vec::new();
        for (client, retries) in &mut self.by_client {
            let mut names = Vec::new();
            for (name, retry) in retries.names.iter_mut().filter(|(_, retry)| retry.at <= now) {
                retry.pause = (retry.pause * 2).min(LONGEST_PAUSE);
                retry.at = now + retry.pause;
                names.push(name.clone());
            }
            if !names.is_empty() {
                due.push((ClientKey::clone(client), names));
            }
        }
        due
    }

    /// When the next retry is due.
    pub(in crate::reconciler) fn deadline(&self) -> Option<Instant> {
        let all = self.by_client.values().flat_map(|retries| retries.names.values());
        all.map(|retry| retry.at).min()
    }
}
