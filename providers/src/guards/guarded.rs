//! One provider's endpoints of one service: what is believed of them, and what is doubted.
//!
//! It judges one answer after the other, and knows of no other service.

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

/// One provider's endpoints of one service.
#[derive(Debug, Clone, Default)]
pub(super) struct Guarded {
    /// The last good set, which is kept.
    #[expect(clippy::rc_buffer, reason = "shared with the provider report, which has this form")]
    pub(super) good: Arc<Vec<Endpoint>>,
    pub(super) learned_at: Timestamp,
    /// Where it follows from what was told, and not from what was kept.
    pub(super) told: Option<Arc<ServiceReport>>,
    pub(super) held: Option<Doubt>,
    pub(super) recent: Recent,
    pub(super) flaps: Flaps,
    pub(super) since: OrdMap<EndpointPlace, Timestamp>,
    pub(super) due: Option<Instant>,
}

#[derive(Debug, Clone)]
pub(super) struct Doubt {
    pub(super) since: Timestamp,
    pub(super) before: usize,
    /// What was believed when it began.
    #[expect(clippy::rc_buffer, reason = "as in `Guarded::good`")]
    pub(super) base: Arc<Vec<Endpoint>>,
    /// Since when its provider vouches for it.
    pub(super) confirmed: Option<Now>,
}

/// How what was told is to be taken.
#[derive(Clone, Copy)]
pub(super) struct How<'a> {
    /// Nothing was known before.
    pub(super) is_new: bool,
    /// An operator says that it is so.
    pub(super) is_accepted: bool,
    pub(super) service: &'a Service,
    pub(super) rule: ShrinkRule,
}

impl Guarded {
    /// Takes what was told last, or doubts it. `is_authoritative`: its provider vouches for it now.
    pub(super) fn take(
        &mut self,
        told: &Arc<ServiceReport>,
        is_authoritative: bool,
        how: How<'_>,
        now: Now,
    ) {
        let How { is_new, is_accepted, service, rule } = how;
        self.told = Some(Arc::clone(told));
        let size = healthy(&self.good).count();
        let leaving = leaving(&self.good, &told.endpoints);
        let left = healthy(&told.endpoints).count();
        let before = self.recent.before(size, leaving, rule.grace, now.instant);
        if let Some(held) = &mut self.held {
            held.before = held.before.saturating_sub(leaving);
            if leaving > 0 {
                held.base = Arc::new(with_drained(&held.base, &told.endpoints));
            }
        }
        let before = self.held.as_ref().map_or(before, |held| held.before);
        // What nobody vouches for takes nobody away, however few they are.
        let base = self.held.as_ref().map_or(&self.good, |held| &held.base);
        let is_lossy = rule.doubts(before, left)
            || rule.keep_share > 0.0 && !is_authoritative && is_lossy(base, &told.endpoints);
        let is_doubted = is_lossy && !is_new && !is_accepted && !service.drained;
        if is_doubted {
            let held = self.held.get_or_insert_with(|| Doubt {
                since: now.timestamp,
                before,
                base: Arc::clone(&self.good),
                confirmed: None,
            });
            held.confirmed = is_authoritative.then(|| held.confirmed.unwrap_or(now));
            let is_over = |since: Now| now.instant >= since.instant + rule.grace;
            if !held.confirmed.is_some_and(is_over) {
                // Compared with what was believed when the doubt began: who came and went meanwhile is gone.
                let merged = without_loss(&held.base, &told.endpoints);
                if *self.good != merged {
                    self.good = Arc::new(merged);
                }
                return self.date(now.timestamp);
            }
        }
        self.held = None;
        if !is_new {
            self.flaps.note(&self.good, &told.endpoints, now.instant);
        }
        if is_lossy {
            self.recent.forget();
        } else {
            self.recent.take(size.saturating_sub(leaving), now.instant);
        }
        self.recent.take(left, now.instant);
        self.learned_at = told.learned_at;
        if self.good != told.endpoints {
            self.good = Arc::clone(&told.endpoints);
        }
        self.date(now.timestamp);
    }

    /// Dates who is new.
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
