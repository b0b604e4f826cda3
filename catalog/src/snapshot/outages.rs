//! Findings about service ports that policy allows to be called, but that have no available endpoint.
//!
//! Their callers get errors. This module owns the findings. It never decides where calls go.

use std::collections::BTreeSet;

use super::Snapshot;
use super::endpoint_status::{EndpointState, EndpointStatus};
use crate::codes::NO_ENDPOINT_FOR_CALLERS;
use crate::endpoint::{Health, MeshEndpoint};
use crate::endpoint_source::EndpointSource;
use crate::finding::{Finding, Spot};
use crate::name::{ServiceAccount, ServiceName, ServicePort};
use crate::policy::TrafficSplit;
use crate::proxy::{CordonMode, JoinRecord};
use crate::service::{Mode, Port, Service};

/// The most endpoints and callers that a finding names.
const NAMED: usize = 3;

/// Whether one of the hosts is available: callers use healthy endpoints only, even if there are none.
pub(super) fn are_available(hosts: &[MeshEndpoint]) -> bool {
    hosts.iter().any(|host| host.health == Health::Healthy)
}

/// The origin of the calls of a service port.
struct CallPath {
    /// The policy that sends calls there.
    spot: Spot,
    /// The effect on callers.
    effect: String,
}

impl Snapshot {
    /// One finding for each service port that policy allows to be called and that has no available endpoint. It is an
    /// error if a proxy that may call it has connected before, so that calls fail, and a warning otherwise. A mesh
    /// without any connected proxy is not in use, and has none.
    ///
    /// The cost is linear in the ports without endpoints and the services that may call them, never in all proxies of a
    /// mesh in use.
    ///
    /// A port for which `is_rolling_out` is true is left out: callers do not have it yet.
    pub fn outages(&self, is_rolling_out: impl Fn(&ServicePort) -> bool) -> Vec<Finding> {
        if self.ports_without_endpoints.is_empty()
            || !self.records.values().any(|record| is_caller(record))
        {
            return Vec::new();
        }
        let of_port = |at: &ServicePort| {
            let service = self.service(&at.service)?;
            self.outage(at, service, service.port(at.port)?)
        };
        self.ports_without_endpoints
            .iter()
            .filter(|at| !is_rolling_out(at))
            .filter_map(of_port)
            .collect()
    }

    /// The service ports without an available endpoint.
    pub fn ports_without_endpoints(&self) -> impl Iterator<Item = &ServicePort> {
        self.ports_without_endpoints.iter()
    }

    fn outage(&self, at: &ServicePort, service: &Service, port: &Port) -> Option<Finding> {
        let CallPath { spot, effect } = self.call_path(at, service, port)?;
        let granted = self.granted(service, port);
        let is_open = self.mode_of(service) != Mode::Strict;
        let may_call = |account: &ServiceAccount| {
            service.is_visible_in(&account.namespace)
                && (granted.contains(account) || (is_open && *account != service.account))
        };
        let callers = self.specification.services.values().filter(|one| may_call(&one.account));
        let failing = callers.flat_map(|caller| self.callers_as(&caller.name));
        let failing: Vec<_> = failing.take(NAMED + 1).collect();
        if failing.is_empty() && granted.is_empty() {
            return None;
        }
        let (name, number) = (&service.name, at.port);
        let message = format!(
            "service `{name}`, port {number} has no available endpoint ({}): {effect}",
            self.endpoints_in_words(name)
        );
        let finding = if failing.is_empty() {
            let text = format!("{message}, once a proxy that may call it connects");
            Finding::warning(NO_ENDPOINT_FOR_CALLERS, Some(spot), text)
        } else {
            let words = |record: &&JoinRecord| {
                let service = record.services.first().map(ToString::to_string).unwrap_or_default();
                format!("`{service}` at {}", record.mesh_address.ip())
            };
            let some: Vec<_> = failing.iter().take(NAMED).map(words).collect();
            // (Not how many: each that connects would make it another finding, which is logged.)
            let more = if failing.len() > NAMED { " and others" } else { "" };
            let text = format!("{message}; callers: {}{more}", some.join(", "));
            Finding::error(NO_ENDPOINT_FOR_CALLERS, Some(spot), text)
        };
        Some(finding.object(at).help(format!(
            "`ironmesh endpoints {name}` shows each endpoint and why it takes no calls; for a service that is empty on purpose set `state = \"drained\"`"
        )))
    }

    /// The proxies in use that call as this service: their first one (docs/decisions/0003).
    fn callers_as<'a>(&'a self, service: &'a ServiceName) -> impl Iterator<Item = &'a JoinRecord> {
        let proxies = self.proxies_of(service).map(|record| &**record);
        proxies.filter(move |one| is_caller(one) && one.services.first() == Some(service))
    }

    /// The origin of the calls of a service port: a split with it as a backend, or its own name. `None` without calls.
    fn call_path(&self, at: &ServicePort, service: &Service, port: &Port) -> Option<CallPath> {
        let failure = if port.protocol.is_http() { "get 503" } else { "fail to connect" };
        let splits = || self.specification.traffic_splits.values();
        let is_backend = |split: &TrafficSplit| {
            split.backends.iter().any(|backend| backend.service == service.name)
        };
        let mut is_backend_of_split = false;
        for split in splits().filter(|split| is_backend(split)) {
            is_backend_of_split = true;
            let apex = self.service(&split.service);
            if apex.is_none_or(|apex| apex.port(at.port).is_none() || apex.drained) {
                continue;
            }
            let sum: u64 = split.backends.iter().map(|backend| u64::from(backend.weight)).sum();
            let mut ours = split.backends.iter().filter(|one| one.service == service.name);
            let Some(backend) = ours.find(|backend| backend.weight > 0) else { continue };
            let share = (u64::from(backend.weight) * 100).div_ceil(sum.max(1));
            let which = if split.is_conditional() { "matching calls" } else { "calls" };
            return Some(CallPath {
                spot: backend.spot.clone(),
                effect: format!("{share} % of the {which} of `{}` {failure}", split.service),
            });
        }
        // A backend without weight gets no calls yet, and an apex service forwards all of its calls.
        let is_apex = splits().any(|one| one.service == service.name && !one.is_conditional());
        if is_backend_of_split || is_apex {
            return None;
        }
        let all = if port.protocol.is_http() { "requests" } else { "connections" };
        let failure = if port.protocol.is_http() { "get 503" } else { "fail" };
        Some(CallPath { spot: service.spot.clone(), effect: format!("all {all} {failure}") })
    }

    /// The accounts that traffic targets allow to call a service port.
    fn granted(&self, service: &Service, port: &Port) -> BTreeSet<&ServiceAccount> {
        let grants = self.grants.on(&service.account).iter();
        let about = grants.filter(|grant| self.specification.has_rule_about(&grant.target, port));
        about.flat_map(|grant| &grant.sources).collect()
    }

    /// The known endpoints of a service, with their addresses and the reasons why they are not available.
    fn endpoints_in_words(&self, name: &ServiceName) -> String {
        let endpoint_statuses = self.endpoint_statuses(name, &super::Records::new());
        let known: Vec<_> = endpoint_statuses.iter().filter_map(status_text).collect();
        match known.len() {
            0 => "none is known".to_owned(),
            few @ ..=NAMED => format!("{few} known: {}", known.join("; ")),
            many => {
                let some: Vec<_> = known.into_iter().take(NAMED).collect();
                format!("{many} known: {}; and {} more", some.join("; "), many - NAMED)
            }
        }
    }
}

/// Whether a proxy has connected before and is not unreachable.
fn is_caller(record: &JoinRecord) -> bool {
    record.claimed_at.is_some() && record.unreachable_since.is_none()
}

fn status_text(status: &EndpointStatus) -> Option<String> {
    let endpoint = status.endpoint.as_ref()?;
    let why = match &status.state {
        EndpointState::Excluded(why) => why.to_string(),
        _ if status.is_failing() => "its application fails its health check".to_owned(),
        _ if status.cordon.is_some() => {
            let mode = status.cordon.map(CordonMode::participle).unwrap_or_default();
            format!("an operator has {mode} its proxy")
        }
        _ if status.leaving_since.is_some() => "its proxy leaves the mesh".to_owned(),
        EndpointState::Participant | EndpointState::Plaintext(_) | EndpointState::External => {
            format!("{} reports it as {}", endpoint.provider, endpoint.health)
        }
    };
    Some(format!("{}, {why}", endpoint.address))
}

/// Whether a service's endpoints are addresses that the control plane knows: callers look up hostnames themselves.
pub(super) fn has_known_endpoints(service: &Service) -> bool {
    !matches!(service.endpoints, EndpointSource::Hostname)
}
