//! When what clients NACKed for reasons of their own machines is sent to them again: with backoff, until it is ACKed
//! or policy asks for another version (docs/decisions/0052). Sends nothing itself.

use std::collections::BTreeMap;
use std::time::Duration;

use ironmesh_xds_server::ClientKey;
use ironmesh_xds_wire::Version;
use tokio::time::Instant;

use super::Name;

/// The pause before the first retry. A process that restarts frees its port within this time.
const FIRST_PAUSE: Duration = Duration::from_secs(5);

/// The longest pause: a push of one resource to one proxy costs nothing at this rate.
const LONGEST_PAUSE: Duration = Duration::from_secs(300);

/// The retries that are due some day.
#[derive(Debug, Default)]
pub(in crate::reconciler) struct Retries {
    by_client: BTreeMap<ClientKey, OfClient>,
}

#[derive(Debug)]
struct OfClient {
    /// Which process of the client.
    beginnings: u64,
    names: BTreeMap<Name, Retry>,
}

#[derive(Debug)]
struct Retry {
    version: Version,
    at: Instant,
    pause: Duration,
}

impl Retries {
    /// A client NACKs these versions for reasons of its machine, and no others. What is known already keeps its
    /// backoff, unless another process of the client has begun since.
    pub(super) fn follow(
        &mut self,
        client: &ClientKey,
        beginnings: u64,
        local: Vec<(Name, Version)>,
        now: Instant,
    ) {
        let old = self.by_client.remove(client).filter(|old| old.beginnings == beginnings);
        let mut old = old.map(|old| old.names).unwrap_or_default();
        let retry = |(name, version): (Name, Version)| {
            let known = old.remove(&name).filter(|known| known.version == version);
            let first = Retry { version, at: now + FIRST_PAUSE, pause: FIRST_PAUSE };
            (name, known.unwrap_or(first))
        };
        let names: BTreeMap<_, _> = local.into_iter().map(retry).collect();
        if !names.is_empty() {
            self.by_client.insert(ClientKey::clone(client), OfClient { beginnings, names });
        }
    }

    /// A client has gone. Its next stream begins with the first pause.
    pub(super) fn forget(&mut self, client: &str) {
        self.by_client.remove(client);
    }

    /// What is to be sent again now; the next pauses are twice as long.
    pub(in crate::reconciler) fn take_due(&mut self, now: Instant) -> Vec<(ClientKey, Vec<Name>)> {
        let mut due = Vec::new();
        for (client, of_client) in &mut self.by_client {
            let mut names = Vec::new();
            for (name, retry) in of_client.names.iter_mut().filter(|(_, retry)| retry.at <= now) {
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

    /// When something is to be sent again next.
    pub(in crate::reconciler) fn deadline(&self) -> Option<Instant> {
        let all = self.by_client.values().flat_map(|of_client| of_client.names.values());
        all.map(|retry| retry.at).min()
    }
}
