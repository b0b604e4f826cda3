//! The view of the traffic table for operators.

use std::collections::BTreeMap;

use ironmesh_api::{TrafficDirection, TrafficReporter, TrafficRow, TrafficView};
use ironmesh_catalog::{ProxyId, ProxyName, ServiceName, ServicePort, TrafficCounts};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::window::{STEP, STEPS};
use super::{TrafficKey, TrafficTable};

impl TrafficTable {
    /// The traffic of a service, as caller and as called one, or of all; of the proxies that are in use, with their names.
    pub(crate) fn view(
        &self,
        service: Option<&ServiceName>,
        (now, instant): (Timestamp, Instant),
        name: impl Fn(ProxyId) -> Option<ProxyName>,
    ) -> TrafficView {
        let step = self.step(instant);
        let mut rows: BTreeMap<TrafficKey, (TrafficCounts, u64)> = BTreeMap::new();
        let mut proxies = Vec::new();
        let state = self.state.lock();
        for (key, window) in state.windows.iter().filter(|(key, _)| key.is_about(service)) {
            let sum = window.sum(step);
            if !sum.is_empty() {
                rows.insert(key.clone(), (sum, 0));
            }
        }
        for (id, proxy) in state.proxies.iter().filter(|(_, proxy)| proxy.expires > instant) {
            let Some(name) = name(*id) else { continue };
            for (key, count) in proxy.in_flight.iter().filter(|(key, _)| key.is_about(service)) {
                let (_, in_flight) = rows.entry(key.clone()).or_default();
                *in_flight = in_flight.saturating_add(*count);
            }
            if service.is_none_or(|service| proxy.services.contains(service)) {
                proxies.push(TrafficReporter { id: *id, name, reported_at: proxy.reported_at });
            }
        }
        drop(state);
        let window = instant
            .saturating_duration_since(self.start + STEP * u32::try_from(step).unwrap_or_default())
            + STEP * u32::try_from(STEPS - 1).unwrap_or_default();
        let begin = now.saturating_sub(SignedDuration::try_from(window).unwrap_or_default());
        TrafficView {
            since: begin.unwrap_or(self.started_at).max(self.started_at),
            traffic: rows
                .into_iter()
                .map(|(key, (sum, in_flight))| row(key, &sum, in_flight))
                .collect(),
            proxies,
        }
    }
}

impl TrafficKey {
    fn is_about(&self, service: Option<&ServiceName>) -> bool {
        let Some(service) = service else { return true };
        match self {
            Self::Outbound(caller, port) => {
                caller == service || port.as_ref().is_some_and(|port| port.service == *service)
            }
            Self::Inbound(port) => port.service == *service,
        }
    }
}

fn row(key: TrafficKey, sum: &TrafficCounts, in_flight: u64) -> TrafficRow {
    let (direction, caller, port) = match key {
        TrafficKey::Outbound(caller, port) => (TrafficDirection::Outbound, Some(caller), port),
        TrafficKey::Inbound(port) => (TrafficDirection::Inbound, None, Some(port)),
    };
    let (service, port) = port.map(|ServicePort { service, port }| (service, port)).unzip();
    TrafficRow {
        direction,
        caller,
        service,
        port,
        requests: sum.requests,
        responses_2xx: sum.responses_2xx,
        responses_3xx: sum.responses_3xx,
        responses_4xx: sum.responses_4xx,
        responses_5xx: sum.responses_5xx,
        in_flight,
        latency_ms: sum.latency.quantiles(),
        connections: sum.connections,
        connect_failures: sum.connect_failures,
        bytes_sent: sum.bytes_sent,
        bytes_received: sum.bytes_received,
    }
}
