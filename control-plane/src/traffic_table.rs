//! The traffic table: what proxies counted in the last ten minutes, by caller and called service port, and how many requests
//! they counted since the start.
//!
//! It is the one writer of these sums, which are in memory alone, within bounds: at most [`MAX_PAIRS`] pairs, and the calls
//! of further pairs add up by caller; `totals.rs` has the bound of the requests since the start. It never decides what a proxy may report about, and changes nothing that proxies get
//! (docs/decisions/0083).

mod totals;
mod view;
mod window;

use std::collections::BTreeMap;
use std::time::Duration;

use ironmesh_catalog::{ProxyId, ServiceName, ServicePort};
use ironmesh_enrollment::{ReportedFlow, ReportedTraffic, TrafficReport};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use totals::RequestTotals;
pub(crate) use totals::{CLASSES, RequestsByClass, TrafficPair};
use window::{STEP, TrafficWindow};

/// The most pairs of a caller and a called service port. One takes 3 to 37 KB (docs/performance.md).
const MAX_PAIRS: usize = 4096;

/// Where traffic was counted, and of what.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum TrafficKey {
    /// By the caller: its calls to a service port, or to all others.
    Outbound(ServiceName, Option<ServicePort>),
    /// By the proxies of a service port: calls of all callers.
    Inbound(ServicePort),
}

/// The traffic of the last minutes.
#[derive(Debug)]
pub(crate) struct TrafficTable {
    start: Instant,
    started_at: Timestamp,
    state: Mutex<State>,
}

#[derive(Debug, Default)]
struct State {
    windows: BTreeMap<TrafficKey, TrafficWindow>,
    proxies: BTreeMap<ProxyId, ReportingProxy>,
    totals: RequestTotals,
    /// The step in which old traffic was forgotten last.
    swept: u64,
}

/// A proxy that reports.
#[derive(Debug)]
struct ReportingProxy {
    services: Vec<ServiceName>,
    reported_at: Timestamp,
    expires: Instant,
    /// The number of the last batch.
    batch: u64,
    in_flight: BTreeMap<TrafficKey, u64>,
}

/// The proxy of a report: its services, of which the first is the caller, and how long the report lasts.
#[derive(Debug, Clone)]
pub(crate) struct TrafficSource<'a> {
    pub(crate) proxy: ProxyId,
    pub(crate) services: &'a [ServiceName],
    pub(crate) lifetime: Duration,
}

impl Default for TrafficTable {
    fn default() -> Self {
        Self { start: Instant::now(), started_at: Timestamp::now(), state: Mutex::default() }
    }
}

impl TrafficTable {
    /// Adds a report. `is_known` decides which service ports the proxy may report calls of: others add up. `is_allowed`
    /// decides which of them it may call: only these have totals of their own.
    ///
    /// A batch that the proxy sends again counts once.
    pub(crate) fn record(
        &self,
        source: &TrafficSource<'_>,
        report: TrafficReport,
        is_known: impl Fn(&ServicePort) -> bool,
        is_allowed: impl Fn(&ServicePort) -> bool,
        (now, instant): (Timestamp, Instant),
    ) {
        let Some(caller) = source.services.first() else { return };
        let TrafficReport { batch, seconds, outbound, outbound_other, inbound } = report;
        let of_port = |ReportedFlow { service, port, traffic }: ReportedFlow| {
            (ServicePort::new(service, port), traffic)
        };
        let outbound = outbound.into_iter().map(of_port).map(|(port, traffic)| {
            let port = Some(port).filter(|port| is_known(port));
            (TrafficKey::Outbound(caller.clone(), port), traffic)
        });
        let other = outbound_other.into_iter();
        let other = other.map(|traffic| (TrafficKey::Outbound(caller.clone(), None), traffic));
        let inbound = inbound.into_iter().map(of_port).filter_map(|(port, traffic)| {
            let is_own = source.services.contains(&port.service) && is_known(&port);
            is_own.then_some((TrafficKey::Inbound(port), traffic))
        });
        let flows: Vec<_> = outbound.chain(other).chain(inbound).collect();
        // Policy is examined before the lock.
        let pairs: Vec<_> = flows.iter().map(|(key, _)| allowed_pair(key, &is_allowed)).collect();
        let step = self.step(instant);
        let mut state = self.state.lock();
        let known = state.proxies.get(&source.proxy);
        let is_repeated = known.is_some_and(|known| known.batch == batch);
        let mut in_flight: BTreeMap<_, u64> = BTreeMap::new();
        for ((key, ReportedTraffic { in_flight: now, counts }), pair) in
            flows.into_iter().zip(pairs)
        {
            if matches!(key, TrafficKey::Outbound(..)) && !is_repeated {
                state.totals.add(pair, &counts);
            }
            let key = state.key_within_bound(key, step);
            if now > 0 {
                let known = in_flight.entry(key.clone()).or_default();
                *known = known.saturating_add(now);
            }
            if !is_repeated && !counts.is_empty() {
                state.windows.entry(key).or_default().add(step, seconds, &counts);
            }
        }
        let services = source.services.to_vec();
        let expires = instant + source.lifetime;
        let proxy = ReportingProxy { services, reported_at: now, expires, batch, in_flight };
        state.proxies.insert(source.proxy, proxy);
    }

    /// The requests since the start. A pair that `is_allowed` does not allow any more adds to the others from now on.
    pub(crate) fn request_totals(
        &self,
        is_allowed: impl Fn(&TrafficPair) -> bool,
    ) -> RequestTotals {
        let mut state = self.state.lock();
        state.totals.retain(is_allowed);
        state.totals.clone()
    }

    /// Forgets what is old, and the proxies that are not in use, unless that was done in this minute.
    pub(crate) fn sweep(&self, instant: Instant, is_in_use: impl Fn(ProxyId) -> bool) {
        let step = self.step(instant);
        let mut state = self.state.lock();
        if state.swept < step {
            state.forget_old(step);
            state.proxies.retain(|id, proxy| proxy.expires > instant && is_in_use(*id));
        }
    }

    /// The number of the step at an instant.
    fn step(&self, instant: Instant) -> u64 {
        instant.saturating_duration_since(self.start).as_secs() / STEP.as_secs()
    }
}

/// The pair of calls that their caller counts, if policy allows it.
fn allowed_pair(
    key: &TrafficKey,
    is_allowed: impl Fn(&ServicePort) -> bool,
) -> Option<TrafficPair> {
    let TrafficKey::Outbound(caller, Some(port)) = key else { return None };
    is_allowed(port).then(|| (caller.clone(), port.clone()))
}

impl State {
    fn forget_old(&mut self, step: u64) {
        self.swept = step;
        self.windows.retain(|_, window| window.forget_old(step));
    }

    /// The key, or that of the caller's other calls when there are too many pairs.
    fn key_within_bound(&mut self, key: TrafficKey, step: u64) -> TrafficKey {
        let TrafficKey::Outbound(caller, Some(_)) = &key else { return key };
        if self.windows.len() < MAX_PAIRS || self.windows.contains_key(&key) {
            return key;
        }
        if self.swept < step {
            self.forget_old(step);
            return self.key_within_bound(key, step);
        }
        TrafficKey::Outbound(caller.clone(), None)
    }
}

#[cfg(test)]
mod tests;
