//! The events of the running control plane: the cursors of readers, and the task that observes its state.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_admin::{ApiError, EventCursor, EventSource};
use ironmesh_api::EventsQuery;
use ironmesh_catalog::Provider;
use jiff::Timestamp;
use tokio::time::{Instant, sleep};
use tokio_util::sync::CancellationToken;

use super::RunningControlPlane;
use super::configuration::provider_status;
use crate::events::{Observed, finding_key};

/// The least time between two observations.
const PAUSE: Duration = Duration::from_secs(1);

/// How many times as long as an observation the pause after it is at least: in a large mesh whose proxies all have findings,
/// it takes long.
const PAUSE_PER_TIME: u32 = 20;

impl EventSource for RunningControlPlane {
    fn events(
        &self,
        query: &EventsQuery,
        with_journal: bool,
    ) -> Result<Box<dyn EventCursor>, ApiError> {
        self.events.cursor(query, with_journal)
    }
}

impl RunningControlPlane {
    /// Adds an event for each kind of observed state that has changed, until `shutdown`. All changes between two observations
    /// are one.
    pub(crate) async fn observe(
        self: Arc<Self>,
        shutdown: CancellationToken,
    ) -> anyhow::Result<()> {
        let observe = async {
            let mut before = Observed::default();
            let mut feeds = self.feeds.clone();
            let (mut policy, mut of_state) = (self.policy.clone(), self.state_findings.clone());
            loop {
                // What changes during the observation is a reason for the next one.
                feeds.ready.mark_unchanged();
                feeds.convergence.mark_unchanged();
                feeds.disconnected.mark_unchanged();
                feeds.endpoints.mark_unchanged();
                policy.mark_unchanged();
                of_state.mark_unchanged();
                let (start, this, old) = (Instant::now(), Arc::clone(&self), before);
                let observed = tokio::task::spawn_blocking(move || {
                    let new = this.observed(&old);
                    new.publish_changes(&old, &this.events);
                    new
                });
                before = observed.await?;
                sleep(PAUSE.max(start.elapsed() * PAUSE_PER_TIME)).await;
                // Other findings and silences change more slowly, and some end by time.
                tokio::select! {
                    _ = feeds.ready.changed() => {}
                    _ = feeds.convergence.changed() => {}
                    _ = feeds.disconnected.changed() => {}
                    _ = feeds.endpoints.changed() => {}
                    _ = policy.changed() => {}
                    _ = of_state.changed() => {}
                    () = sleep(PAUSE * 5) => {}
                }
            }
        };
        tokio::select! {
            ended = observe => ended,
            () = shutdown.cancelled() => Ok(()),
        }
    }

    /// The observed states now, and what they were `before`.
    fn observed(&self, before: &Observed) -> Observed {
        let found = self.feeds.endpoints.borrow().clone();
        let snapshot = self.feeds.snapshot.borrow().clone();
        let status = |provider| provider_status(provider, snapshot.as_deref(), &found);
        let mut disconnected: BTreeSet<_> =
            self.feeds.disconnected.borrow().since.keys().copied().collect();
        let others = before.disconnected.difference(&disconnected).copied();
        let (reconnected, away): (Vec<_>, Vec<_>) = others.partition(|&id| self.is_connected(id));
        // The feed has no proxies that are disconnected for long.
        disconnected.extend(away.into_iter().filter(|&id| self.register.get(id).is_some()));
        let laggards = self.feeds.convergence.borrow().laggards().clone();
        let findings = self.active_findings(Timestamp::now());
        Observed {
            ready: *self.feeds.ready.borrow() && self.sidecars.waiting_for().is_empty(),
            policy: self.policy.borrow().view.revision.clone(),
            providers: Provider::ALL
                .into_iter()
                .map(|provider| (provider, status(provider)))
                .collect(),
            disconnected: Arc::new(disconnected),
            reconnected,
            updating: Arc::new(laggards.keys().copied().collect()),
            findings: Arc::new(findings.iter().map(finding_key).collect()),
        }
    }
}
