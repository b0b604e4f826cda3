//! The log of findings about proxies. A proxy chooses what it requests, so it must not fill the log.
//!
//! `ironmesh proxy list` has all findings; the log only announces them.

use std::collections::BTreeMap;
use std::time::Duration;

use ironmesh_catalog::Finding;
use ironmesh_xds_server::ClientKey;
use tokio::time::Instant;

/// The pause between two log events about the same proxy.
const PAUSE: Duration = Duration::from_secs(10);

/// When findings of each proxy were last logged, and how many were suppressed since. A proxy without suppressed
/// findings is forgotten once its pause is over.
#[derive(Debug, Default)]
pub(super) struct FindingLog {
    proxies: BTreeMap<ClientKey, Logged>,
    /// When proxies were last forgotten.
    swept_at: Option<Instant>,
}

#[derive(Debug, Default)]
struct Logged {
    at: Option<Instant>,
    suppressed: usize,
}

impl FindingLog {
    /// Logs new findings about a proxy: the first one and the count of the others.
    pub(super) fn log<'a>(
        &mut self,
        client: &ClientKey,
        mut new: impl Iterator<Item = &'a Finding>,
        now: Instant,
    ) {
        let Some(first) = new.next() else { return };
        let count = 1 + new.count();
        self.sweep(now);
        let logged = self.proxies.entry(ClientKey::clone(client)).or_default();
        if is_recent(logged.at, now) {
            logged.suppressed += count;
            return;
        }
        let others = count - 1 + std::mem::take(&mut logged.suppressed);
        logged.at = Some(now);
        if others == 0 {
            tracing::warn!(%client, "{first}");
        } else {
            tracing::warn!(%client, others, "{first}; `ironmesh proxy show {client}` lists all");
        }
    }

    fn sweep(&mut self, now: Instant) {
        if !is_recent(self.swept_at, now) {
            self.swept_at = Some(now);
            self.proxies.retain(|_, logged| logged.suppressed > 0 || is_recent(logged.at, now));
        }
    }
}

fn is_recent(at: Option<Instant>, now: Instant) -> bool {
    at.is_some_and(|at| now < at + PAUSE)
}
