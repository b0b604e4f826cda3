//! One provider's endpoints of one service: the set in use, and a held-back removal.
//!
//! It handles one report after the other, and never looks at another service.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_catalog::{Endpoint, EndpointPlace, Service};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Now;
use super::flaps::Flaps;
use super::shrink::{Recent, ShrinkRule, healthy, is_lossy, leaving, with_drained, without_loss};
use crate::provider::ServiceReport;

/// One provider's endpoints of one service, and the state of their guard.
#[derive(Debug, Clone, Default)]
pub(super) struct Guarded {
    /// The last good set, which is saved.
    #[expect(clippy::rc_buffer, reason = "shared with the provider report, which has this form")]
    pub(super) good: Arc<Vec<Endpoint>>,
    pub(super) learned_at: Timestamp,
    /// The latest report; `None` if the set comes from the saved state.
    pub(super) report: Option<Arc<ServiceReport>>,
    pub(super) held: Option<ShrinkHold>,
    pub(super) recent: Recent,
    pub(super) flaps: Flaps,
    pub(super) since: OrdMap<EndpointPlace, Timestamp>,
    pub(super) due: Option<Instant>,
}

/// What the guard keeps while it holds a removal back.
#[derive(Debug, Clone)]
pub(super) struct ShrinkHold {
    /// The time of the report that is held back.
    pub(super) since: Timestamp,
    /// The number of healthy endpoints before.
    pub(super) before: usize,
    /// The set in use when the removal was held back.
    #[expect(clippy::rc_buffer, reason = "as in `Guarded::good`")]
    pub(super) base: Arc<Vec<Endpoint>>,
    /// The time since which the provider has been authoritative for the removal.
    pub(super) confirmed: Option<Now>,
    /// Whether it was held back by comparison with the saved set.
    pub(super) is_of_saved: bool,
}

/// The circumstances of a report.
#[derive(Clone, Copy)]
pub(super) struct ReportContext<'a> {
    /// The source had no endpoints before.
    pub(super) is_new: bool,
    /// An operator accepted the removal.
    pub(super) is_accepted: bool,
    pub(super) service: &'a Service,
    pub(super) rule: ShrinkRule,
}

impl Guarded {
    /// Applies the latest report, or holds it back. `is_authoritative` says whether its provider is
    /// authoritative now.
    pub(super) fn take(
        &mut self,
        report: &Arc<ServiceReport>,
        is_authoritative: bool,
        context: ReportContext<'_>,
        now: Now,
    ) {
        let ReportContext { is_new, is_accepted, service, rule } = context;
        let is_of_saved = self.report.replace(Arc::clone(report)).is_none() && !is_new;
        let size = healthy(&self.good).count();
        let leaving = leaving(&self.good, &report.endpoints);
        let left = healthy(&report.endpoints).count();
        let before = self.recent.before(size, leaving, rule.grace, now.instant);
        if let Some(held) = &mut self.held {
            held.before = held.before.saturating_sub(leaving);
            if leaving > 0 {
                held.base = Arc::new(with_drained(&held.base, &report.endpoints));
            }
        }
        let before = self.held.as_ref().map_or(before, |held| held.before);
        // A report that is not authoritative removes no endpoint, however few it lacks.
        let base = self.held.as_ref().map_or(&self.good, |held| &held.base);
        let is_lossy = rule.holds_back(before, left)
            || rule.keep_share > 0.0 && !is_authoritative && is_lossy(base, &report.endpoints);
        let is_held_back = is_lossy && !is_new && !is_accepted && !service.drained;
        if is_held_back {
            let held = self.held.get_or_insert_with(|| ShrinkHold {
                since: now.timestamp,
                before,
                base: Arc::clone(&self.good),
                confirmed: None,
                is_of_saved,
            });
            held.confirmed = is_authoritative.then(|| held.confirmed.unwrap_or(now));
            let is_over = |since: Now| now.instant >= since.instant + rule.grace;
            if !held.confirmed.is_some_and(is_over) {
                // Compared with the set at the begin of the hold: an endpoint that came and went
                // since then is gone.
                let merged = without_loss(&held.base, &report.endpoints);
                if *self.good != merged {
                    self.good = Arc::new(merged);
                }
                return self.date(now.timestamp);
            }
        }
        self.held = None;
        if !is_new {
            self.flaps.note(&self.good, &report.endpoints, now.instant);
        }
        if is_lossy {
            self.recent.forget();
        } else {
            self.recent.take(size.saturating_sub(leaving), now.instant);
        }
        self.recent.take(left, now.instant);
        self.learned_at = report.learned_at;
        if self.good != report.endpoints {
            self.good = Arc::clone(&report.endpoints);
        }
        self.date(now.timestamp);
    }

    /// Records the time of each new endpoint.
    fn date(&mut self, now: Timestamp) {
        let places: BTreeSet<_> = self.good.iter().map(Endpoint::place).collect();
        let gone: Vec<_> =
            self.since.keys().filter(|place| !places.contains(place)).copied().collect();
        for place in gone {
            self.since.remove(&place);
        }
        for place in places {
            self.since.entry(place).or_insert(now);
        }
    }
}
