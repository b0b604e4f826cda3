//! What `/metrics` says, in the words of OpenMetrics. Everything is read when it is asked for: there is
//! no second book of numbers that could differ from what is.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::Provider;
use ironmesh_providers::GuardStatus;
use ironmesh_xds_server::{CloseReason, ConnectionRejection, Counters, Hub};
use ironmesh_xds_wire::ResourceType;
use prometheus_client::collector::Collector;
use prometheus_client::encoding::{DescriptorEncoder, EncodeMetric, text};
use prometheus_client::metrics::counter::ConstCounter;
use prometheus_client::metrics::gauge::ConstGauge;
use prometheus_client::registry::Registry;
use tokio::sync::watch;

use super::audit::Audit;
use super::policy_source::PolicyState;
use super::reconciler::{EndpointsView, StatusFeeds};
use super::register::Register;

/// Where the numbers come from.
#[derive(Debug, Clone)]
pub(crate) struct Sources {
    pub(crate) hub: Arc<Hub>,
    pub(crate) register: Arc<Register>,
    pub(crate) policy: watch::Receiver<PolicyState>,
    pub(crate) feeds: StatusFeeds,
    pub(crate) audit: Arc<Audit>,
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
        let clients = self.hub.status();
        let streams: usize = clients.iter().map(|(_, status)| status.streams).sum();
        let connected = clients.iter().filter(|(_, status)| status.streams > 0).count();
        let joined = self.register.records().len();
        let is_stale = self.policy.borrow().view.stale_since.is_some();
        let not_in_force = self.feeds.not_in_force.borrow();
        let refused: usize = not_in_force.values().map(|one| one.refused.len()).sum();
        let withheld: usize = not_in_force.values().map(|one| one.withheld.len()).sum();
        drop(not_in_force);
        let mesh_findings = self.feeds.mesh_findings.borrow().len();
        let proxy_findings: usize = self.feeds.findings.borrow().values().map(Vec::len).sum();
        let gauges = [
            ("ready", "Whether xDS is served", usize::from(*self.feeds.ready.borrow())),
            ("proxies_joined", "Proxies that have joined and are in use", joined),
            ("proxies_connected", "Proxies with a stream", connected),
            ("xds_streams", "Streams that are open", streams),
            (
                "policy_stale",
                "Whether what the source of policy holds is not in force",
                usize::from(is_stale),
            ),
            ("resources_refused", "What proxies refuse of what policy asks for", refused),
            (
                "resources_withheld",
                "What proxies were not asked to take, as others refuse it",
                withheld,
            ),
            ("mesh_findings", "Endpoints that get no traffic, or plaintext", mesh_findings),
            ("proxy_findings", "What is wrong with what proxies ask for", proxy_findings),
        ];
        for (name, help, value) in gauges {
            let gauge = ConstGauge::new(i64::try_from(value).unwrap_or(i64::MAX));
            let metric = encoder.encode_descriptor(name, help, None, gauge.metric_type())?;
            gauge.encode(metric)?;
        }
        let sets = ConstCounter::new(self.hub.counters().sets());
        let help = "How often a proxy was given another set of resources";
        sets.encode(encoder.encode_descriptor("xds_sets", help, None, sets.metric_type())?)?;
        let counters: [(&str, &str, Read); 4] = [
            ("xds_pushes", "Responses that were sent", Counters::pushes),
            ("xds_acks", "Responses that were taken", Counters::acks),
            ("xds_nacks", "Responses that were refused", Counters::nacks),
            ("xds_late_answers", "Responses that were not answered in time", Counters::late),
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
        let turned =
            ConnectionRejection::ALL.map(|why| (why.word(), counts.connections_rejected(why)));
        let help = "Connections that were turned away";
        by_reason(&mut encoder, "xds_connections_refused", help, &turned)?;
        let closed = CloseReason::ALL.map(|why| (why.word(), counts.streams_closed(why)));
        let help = "Streams that were ended for what the client does";
        by_reason(&mut encoder, "xds_streams_closed", help, &closed)?;
        endpoints(&mut encoder, &self.feeds.endpoints.borrow())?;
        would_deny(&mut encoder, &self.audit)
    }
}

type OfProvider<'a> = &'a dyn Fn(Provider) -> usize;

/// By provider: whether it is stale as a whole, and of how many services what it says is stale, held back or
/// flapping.
fn endpoints(
    encoder: &mut DescriptorEncoder<'_>,
    known: &EndpointsView,
) -> Result<(), std::fmt::Error> {
    let providers: BTreeSet<Provider> =
        known.providers.keys().chain(known.beliefs.keys().map(|(of, _)| of)).copied().collect();
    let count = |provider: Provider, is_one: fn(&GuardStatus) -> bool| {
        let of_it = known.beliefs.iter().filter(|((of, _), _)| *of == provider);
        of_it.filter(|(_, belief)| is_one(belief)).count()
    };
    let is_stale = |provider| {
        usize::from(known.providers.get(&provider).is_some_and(|state| state.stale.is_some()))
    };
    let troubles = |provider| known.providers.get(&provider).map_or(0, |one| one.troubles.len());
    let stale: fn(&GuardStatus) -> bool =
        |belief| belief.sighting.as_ref().is_some_and(|sighting| sighting.stale.is_some());
    let gauges: [(&str, &str, OfProvider<'_>); 5] = [
        ("provider_stale", "Whether nobody whom an endpoints provider asks can be used", &is_stale),
        ("endpoints_services", "Services of which an endpoints provider tells", &|provider| {
            count(provider, |_| true)
        }),
        ("endpoints_services_stale", "Services of which it tells nothing newer", &|provider| {
            count(provider, stale) + troubles(provider)
        }),
        ("endpoints_services_held", "Services of which a loss is held back", &|provider| {
            count(provider, |belief| belief.held.is_some())
        }),
        ("endpoints_services_flapping", "Services with endpoints that flap", &|provider| {
            count(provider, |belief| !belief.flapping.is_empty())
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

/// By caller and service port, of which there is a bound; of those beyond it by service port.
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
