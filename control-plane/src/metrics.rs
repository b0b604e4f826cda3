//! `/metrics` in the OpenMetrics format. Each number is read from its owner when it is requested: no second copy can
//! differ from the state.

mod fleet;

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{Finding, Provider};
use ironmesh_enrollment::EnrollmentCounters;
use ironmesh_providers::GuardStatus;
use ironmesh_xds_server::{CloseReason, ConnectionRejection, Counters, Hub};
use ironmesh_xds_wire::ResourceType;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::MetricType;
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::{Registry, Unit};
use tokio::sync::watch;

use super::audit::Audit;
use super::health_discovery::{HealthDiscovery, ReportOutcome};
use super::policy_source::PolicyState;
use super::reconciler::convergence::{Convergence, Lag};
use super::reconciler::{EndpointsView, StatusFeeds};
use super::register::Register;

/// The owners of the numbers.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) hub: Arc<Hub>,
    pub(crate) register: Arc<Register>,
    pub(crate) policy: watch::Receiver<PolicyState>,
    pub(crate) feeds: StatusFeeds,
    /// The findings about the control plane's own state.
    pub(crate) state_findings: watch::Receiver<Vec<Finding>>,
    pub(crate) audit: Arc<Audit>,
    pub(crate) enrollment: Arc<EnrollmentCounters>,
    pub(crate) health_discovery: Arc<HealthDiscovery>,
}

/// All metrics, as text.
pub(crate) fn exposition(sources: Sources) -> String {
    let mut registry = Registry::with_prefix("ironmesh");
    registry.register_collector(Box::new(sources));
    let mut text = String::new();
    // Writing to a string does not fail.
    let _ = text::encode(&mut text, &registry);
    text
}

type Read = fn(&Counters, ResourceType) -> u64;

impl Collector for Sources {
    fn encode(&self, mut encoder: DescriptorEncoder<'_>) -> Result<(), std::fmt::Error> {
        let streams = self.hub.open_streams();
        let convergence = self.feeds.convergence.borrow().clone();
        let connected = convergence.connected();
        let enrolled = self.register.records().len();
        let is_stale = self.policy.borrow().view.stale_since.is_some();
        let inactive_resources = self.feeds.inactive_resources.borrow();
        let nacked: usize = inactive_resources.values().map(|one| one.nacked.len()).sum();
        let withheld: usize = inactive_resources.values().map(|one| one.withheld.len()).sum();
        drop(inactive_resources);
        let mesh_findings =
            self.feeds.mesh_findings.borrow().len() + self.state_findings.borrow().len();
        let proxy_findings: usize = self.feeds.findings.borrow().values().map(Vec::len).sum();
        let gauges = [
            ("ready", "Whether xDS is served", usize::from(*self.feeds.ready.borrow())),
            ("proxies_enrolled", "Enrolled proxies that are in use", enrolled),
            ("proxies_connected", "Proxies with a stream", connected),
            ("xds_streams", "Open xDS streams", streams),
            (
                "policy_stale",
                "Whether the policy source holds a revision that is not active",
                usize::from(is_stale),
            ),
            ("resources_nacked", "Resources that proxies NACK", nacked),
            (
                "resources_withheld",
                "Resources withheld from proxies because others NACK them",
                withheld,
            ),
            (
                "mesh_findings",
                "Findings about the mesh as a whole, and the state of the control plane",
                mesh_findings,
            ),
            ("proxy_findings", "Findings about what single proxies request", proxy_findings),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        let sets = ConstCounter::new(self.hub.counters().sets());
        let help = "Resource sets that were published to proxies";
        sets.encode(encoder.encode_descriptor("xds_sets", help, None, sets.metric_type())?)?;
        let counters: [(&str, &str, Read); 4] = [
            ("xds_pushes", "Responses sent", Counters::pushes),
            ("xds_acks", "Responses ACKed", Counters::acks),
            ("xds_nacks", "Responses NACKed", Counters::nacks),
            ("xds_late_answers", "Responses not answered in time", Counters::late),
        ];
        for (name, help, read) in counters {
            let kind = ConstCounter::new(0_u64).metric_type();
            let mut family = encoder.encode_descriptor(name, help, None, kind)?;
            for resource_type in ResourceType::ALL {
                let counter = ConstCounter::new(read(self.hub.counters(), resource_type));
                let labels = [("type", resource_type.to_string().replace(' ', "_"))];
                counter.encode(family.encode_family(&labels)?)?;
            }
        }
        let counts = self.hub.counters();
        let rejected =
            ConnectionRejection::ALL.map(|why| (why.word(), counts.connections_rejected(why)));
        let help = "Connections rejected, by reason";
        by_reason(&mut encoder, "xds_connections_rejected", help, &rejected)?;
        let closed = CloseReason::ALL.map(|why| (why.word(), counts.streams_closed(why)));
        let help = "Streams closed by the control plane, by reason";
        by_reason(&mut encoder, "xds_streams_closed", help, &closed)?;
        let requests: Vec<_> =
            self.enrollment.requests().map(|(outcome, count)| (outcome.word(), count)).collect();
        let help = "Requests of machines for certificates, by outcome";
        by_reason(&mut encoder, "enrollment_requests", help, &requests)?;
        let lost = self.enrollment.connections_lost();
        let lost: Vec<_> = lost.map(|(why, count)| (why.word(), count)).collect();
        let help = "Connections of machines that ended without a request, by reason";
        by_reason(&mut encoder, "enrollment_connections_lost", help, &lost)?;
        let reports = &self.health_discovery.counters;
        let reports = ReportOutcome::ALL.map(|outcome| (outcome.word(), reports.reports(outcome)));
        let help = "Reports of Envoys about the health of their applications, by outcome";
        by_reason(&mut encoder, "health_reports", help, &reports)?;
        synced(&mut encoder, &convergence)?;
        fleet::encode(&mut encoder, &self.register)?;
        endpoints(&mut encoder, &self.feeds.endpoints.borrow())?;
        would_deny(&mut encoder, &self.audit)
    }
}

/// The metrics of convergence: proxies by their state, and how long changes take.
fn synced(
    encoder: &mut DescriptorEncoder<'_>,
    convergence: &Convergence,
) -> Result<(), std::fmt::Error> {
    let lagging = |lag| convergence.laggards().values().filter(|one| one.lag == lag).count();
    let states = [
        ("synced", convergence.connected().saturating_sub(convergence.laggards().len())),
        ("updating", lagging(Lag::Updating)),
        ("nacked", lagging(Lag::Nacked)),
        ("held", lagging(Lag::Held)),
        ("disconnected", convergence.departed().len()),
    ];
    let kind = ConstGauge::new(0_i64).metric_type();
    let help = "Proxies by how far they have ACKed what they should have";
    let mut family = encoder.encode_descriptor("proxies_sync", help, None, kind)?;
    for (state, count) in states {
        let gauge = ConstGauge::new(i64::try_from(count).unwrap_or(i64::MAX));
        gauge.encode(family.encode_family(&[("state", state)])?)?;
    }
    let help = "Time until every proxy that a change touches has ACKed it";
    let unit = Some(&Unit::Seconds);
    let mut family = encoder.encode_descriptor("convergence", help, unit, MetricType::Histogram)?;
    for (kind, histogram) in convergence.durations().histograms() {
        histogram.encode(family.encode_family(&[("change", kind.word())])?)?;
    }
    Ok(())
}

type OfProvider<'a> = &'a dyn Fn(Provider) -> usize;

/// The metrics of endpoints providers: whether one is stale as a whole, and how many of its services are stale, held
/// back or flapping.
fn endpoints(
    encoder: &mut DescriptorEncoder<'_>,
    known: &EndpointsView,
) -> Result<(), std::fmt::Error> {
    let providers: BTreeSet<Provider> =
        known.providers.keys().chain(known.guards.keys().map(|(of, _)| of)).copied().collect();
    let count = |provider: Provider, is_one: fn(&GuardStatus) -> bool| {
        let of_it = known.guards.iter().filter(|((of, _), _)| *of == provider);
        of_it.filter(|(_, guard)| is_one(guard)).count()
    };
    let is_stale = |provider| {
        usize::from(known.providers.get(&provider).is_some_and(|state| state.stale.is_some()))
    };
    let troubles = |provider| known.providers.get(&provider).map_or(0, |one| one.troubles.len());
    let stale: fn(&GuardStatus) -> bool =
        |guard| guard.report.as_ref().is_some_and(|report| report.stale.is_some());
    let gauges: [(&str, &str, OfProvider<'_>); 5] = [
        ("provider_stale", "Whether an endpoints provider has no usable source", &is_stale),
        ("endpoints_services", "Services that an endpoints provider reports", &|provider| {
            count(provider, |_| true)
        }),
        ("endpoints_services_stale", "Services whose report is stale", &|provider| {
            count(provider, stale) + troubles(provider)
        }),
        (
            "endpoints_services_held",
            "Services of which an endpoint removal is held back",
            &|provider| count(provider, |guard| guard.held.is_some()),
        ),
        ("endpoints_services_flapping", "Services with flapping endpoints", &|provider| {
            count(provider, |guard| !guard.flapping.is_empty())
        }),
    ];
    for (name, help, read) in gauges {
        let kind = ConstGauge::new(0_i64).metric_type();
        let mut family = encoder.encode_descriptor(name, help, None, kind)?;
        for provider in &providers {
            let gauge = ConstGauge::new(i64::try_from(read(*provider)).unwrap_or(i64::MAX));
            gauge.encode(family.encode_family(&[("provider", provider.to_string())])?)?;
        }
    }
    Ok(())
}

/// The metrics of audit mode: denials by caller and service port, as far as their bound allows; the rest by port.
fn would_deny(encoder: &mut DescriptorEncoder<'_>, audit: &Audit) -> Result<(), std::fmt::Error> {
    let (counted, others) = audit.counted();
    let kind = ConstCounter::new(0_u64).metric_type();
    let help = "Calls of services in audit that strict would have denied";
    let mut family = encoder.encode_descriptor("audit_would_deny", help, None, kind)?;
    for ((caller, port), count) in counted {
        let labels = [("caller", caller.to_string()), ("service", port.to_string())];
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    for (port, count) in others {
        let labels = [("caller", "others".to_owned()), ("service", port.to_string())];
        ConstCounter::new(count).encode(family.encode_family(&labels)?)?;
    }
    Ok(())
}

fn by_reason(
    encoder: &mut DescriptorEncoder<'_>,
    name: &str,
    help: &str,
    counts: &[(&str, u64)],
) -> Result<(), std::fmt::Error> {
    let kind = ConstCounter::new(0_u64).metric_type();
    let mut family = encoder.encode_descriptor(name, help, None, kind)?;
    for (reason, count) in counts {
        ConstCounter::new(*count).encode(family.encode_family(&[("reason", *reason)])?)?;
    }
    Ok(())
}
