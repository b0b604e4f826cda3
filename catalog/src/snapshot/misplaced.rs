//! Findings about the endpoints of a service, from their statuses.
//!
//! This module owns the texts. It never decides a status; the endpoint classifier does.

use std::net::IpAddr;

use super::classifier::EndpointClassifier;
use super::endpoint_status::{EndpointState, EndpointStatus, ExclusionReason};
use crate::codes::{PROXY_UNREACHABLE, PROXY_WITHOUT_ENDPOINT};
use crate::endpoint::Endpoint;
use crate::finding::{Code, Finding};
use crate::object_ref::ObjectRef;
use crate::proxy::JoinRecord;
use crate::proxy_index::ProxyIndex;

/// An endpoint without a proxy.
const ENDPOINT_WITHOUT_PROXY: Code = Code(404);

/// An endpoint that several proxies match.
const ENDPOINT_WITH_SEVERAL_PROXIES: Code = Code(405);

/// The most findings of one kind before one summary replaces them.
const FEW: usize = 3;

/// Whether an endpoint has no proxy at all.
fn is_without(status: &EndpointStatus) -> bool {
    let (EndpointState::Plaintext(why) | EndpointState::Excluded(why)) = &status.state else {
        return false;
    };
    matches!(why, ExclusionReason::NoProxy | ExclusionReason::Expired)
}

/// The first few of `all` addresses.
fn abbreviated(addresses: impl Iterator<Item = IpAddr>, all: usize) -> String {
    let some: Vec<_> = addresses.take(FEW).map(|address| address.to_string()).collect();
    format!("{} and {} more", some.join(", "), all.saturating_sub(some.len()))
}

impl EndpointClassifier<'_> {
    /// The findings about the endpoints of the service. `endpoints` is none before the first report of a provider.
    pub(super) fn findings(&self, endpoints: Option<&[Endpoint]>) -> Vec<Finding> {
        // The findings of a subset are those of its service. External services have no proxies, and drained
        // services need no findings.
        if self.service.is_subset() || self.service.external.is_some() || self.is_drained {
            return Vec::new();
        }
        let past = ProxyIndex::default();
        let known = endpoints.unwrap_or_default();
        let endpoint_statuses: Vec<_> =
            known.iter().map(|endpoint| self.status(endpoint, &past)).collect();
        let (without, others): (Vec<_>, Vec<_>) =
            endpoint_statuses.iter().partition(|one| is_without(one));
        let is_many = without.len() > FEW;
        let summary = is_many.then(|| self.many_without_proxies(&without));
        let each = without.into_iter().filter(|_| !is_many).chain(others);
        let misplaced = each.filter_map(|status| self.misplaced(status)).chain(summary);
        let misplaced = misplaced.chain(self.excluded(known));
        let unreachable = self.unreachable(&endpoint_statuses);
        let expects_endpoints = endpoints.is_some() && !self.service.ports.is_empty();
        let without_endpoint =
            if expects_endpoints { self.proxies_without_endpoint(known) } else { Vec::new() };
        let without_endpoint =
            without_endpoint.into_iter().filter(|record| record.unreachable_since.is_none());
        let without_endpoint: Vec<_> = without_endpoint.collect();
        let without_endpoint = if without_endpoint.len() > FEW {
            vec![self.many_without_endpoints(&without_endpoint)]
        } else {
            without_endpoint.into_iter().map(|record| self.proxy_without_endpoint(record)).collect()
        };
        misplaced.chain(unreachable).chain(without_endpoint).collect()
    }

    /// One finding for many endpoints without a proxy: a whole service may not be enrolled yet.
    fn many_without_proxies(&self, endpoint_statuses: &[&EndpointStatus]) -> Finding {
        let name = &self.service.name;
        let is_plaintext =
            |one: &&&EndpointStatus| matches!(one.state, EndpointState::Plaintext(_));
        let plain = endpoint_statuses.iter().filter(is_plaintext).count();
        let what = match plain {
            0 => "get no traffic".to_owned(),
            all if all == endpoint_statuses.len() => "are called in plaintext".to_owned(),
            some => format!("get no traffic, or are called in plaintext ({some} of them)"),
        };
        let addresses =
            endpoint_statuses.iter().filter_map(|one| Some(one.endpoint.as_ref()?.address));
        let message = format!(
            "{} endpoints of service `{name}` {what}: no proxy is enrolled for this service at their addresses: {}",
            endpoint_statuses.len(),
            abbreviated(addresses, endpoint_statuses.len())
        );
        let help = format!(
            "enroll proxies: `ironmesh proxy bootstrap --service {name} --address … …`; `ironmesh endpoints {name}` lists them all"
        );
        Finding::warning(ENDPOINT_WITHOUT_PROXY, None, message).object(name).help(help)
    }

    /// One finding for many proxies without an endpoint: a provider may have lost all of a service.
    fn many_without_endpoints(&self, records: &[&JoinRecord]) -> Finding {
        let name = &self.service.name;
        let addresses = records.iter().map(|record| record.mesh_address.ip());
        let message = format!(
            "{} proxies of service `{name}` are not called: no provider reports an endpoint at their addresses: {}",
            records.len(),
            abbreviated(addresses, records.len())
        );
        let spot = Some(self.service.spot.clone());
        Finding::warning(PROXY_WITHOUT_ENDPOINT, spot, message).object(name).help(format!(
            "register endpoints there with a provider; `ironmesh endpoints {name}` lists the proxies"
        ))
    }

    fn misplaced(&self, status: &EndpointStatus) -> Option<Finding> {
        let (why, what) = match &status.state {
            EndpointState::Participant | EndpointState::External => return None,
            EndpointState::Plaintext(why) => (why, "is called in plaintext"),
            EndpointState::Excluded(why) => (why, "gets no traffic"),
        };
        let endpoint = status.endpoint.as_ref()?;
        let (address, name) = (endpoint.address, &self.service.name);
        let message = format!("endpoint {address} of service `{name}` {what}:");
        let of_proxy = |what: &str| {
            let proxy = status.proxy_name.as_ref().map(ToString::to_string).unwrap_or_default();
            format!("{message} proxy {proxy} {what}")
        };
        let machine = endpoint.machine.map(|machine| format!(" --azure-vm-id {machine}"));
        let machine = machine.unwrap_or_default();
        let enroll = |whom: &str| {
            format!(
                "enroll {whom}: `ironmesh proxy bootstrap --service {name} --address {address}{machine} …`"
            )
        };
        let at_address = || ObjectRef::Endpoint(name.clone(), address);
        let without = |message, help: String| {
            let finding = Finding::warning(ENDPOINT_WITHOUT_PROXY, None, message);
            Some(finding.object(at_address()).help(help))
        };
        match why {
            // A proxy that is not ready yet needs no finding, unless callers use plaintext because of it.
            ExclusionReason::Unclaimed
            | ExclusionReason::NotAcked { .. }
            | ExclusionReason::NotReported { .. }
            | ExclusionReason::NotConfigured { .. } => {
                let is_plaintext = matches!(status.state, EndpointState::Plaintext(_));
                let help = "start its Envoy, or see what it NACKed: `ironmesh proxy list`";
                let message = of_proxy("is enrolled there and has not ACKed this service yet");
                is_plaintext.then(|| without(message, help.to_owned())).flatten()
            }
            ExclusionReason::NoProxy | ExclusionReason::Expired => {
                without(format!("{message} {}", ExclusionReason::NoProxy), enroll("a proxy"))
            }
            ExclusionReason::SeveralProxies { .. } => {
                let message = format!("{message} {why}");
                let finding = Finding::warning(ENDPOINT_WITH_SEVERAL_PROXIES, None, message);
                Some(finding.object(at_address()))
            }
            ExclusionReason::Revoked => {
                without(of_proxy("at its address was revoked"), enroll("a new proxy"))
            }
            // The first has a finding about its proxy; `excluded` reports the last.
            ExclusionReason::Unreachable { .. }
            | ExclusionReason::NoEndpoint
            | ExclusionReason::Drained
            | ExclusionReason::Excluded { .. } => None,
        }
    }

    /// One finding for each unreachable proxy without a replacement at its mesh address.
    fn unreachable(&self, endpoint_statuses: &[EndpointStatus]) -> Vec<Finding> {
        let is_replaced = |record: &JoinRecord| {
            let mut others = self.proxies.all();
            others.any(|one| {
                one.mesh_address == record.mesh_address && one.unreachable_since.is_none()
            })
        };
        let unreachable = self.proxies.all().filter(|record| record.unreachable_since.is_some());
        let unreachable = unreachable.filter(|record| !is_replaced(record));
        let finding = |record: &JoinRecord| {
            let (id, proxy, name) = (record.id, record.display_name(), &self.service.name);
            let since = record.unreachable_since?;
            let is_withdrawn = endpoint_statuses.iter().any(|one| {
                one.proxy == Some(id)
                    && matches!(
                        one.state,
                        EndpointState::Excluded(ExclusionReason::Unreachable { .. })
                    )
            });
            let what = if is_withdrawn {
                "callers do not use it"
            } else {
                "callers use it while the provider of its endpoint reports that endpoint"
            };
            let message = format!(
                "proxy {proxy} at {} of service `{name}` is unreachable: it has had no xDS stream since {since:.0}; {what}",
                record.mesh_address
            );
            let help = format!(
                "start its machine and its Envoy, or fix the network between it and the control plane; if it is gone for good: `ironmesh proxy revoke {proxy}`"
            );
            Some(Finding::warning(PROXY_UNREACHABLE, None, message).object(id).help(help))
        };
        unreachable.filter_map(|record| finding(record)).collect()
    }

    fn proxy_without_endpoint(&self, record: &JoinRecord) -> Finding {
        let (proxy, name) = (record.display_name(), &self.service.name);
        let addresses: Vec<_> = record.known_as().iter().map(ToString::to_string).collect();
        let machine = record.machine.map(|machine| format!(", nor on machine {machine}"));
        let addresses = format!("{}{}", addresses.join(" and "), machine.unwrap_or_default());
        let message = format!(
            "proxy {proxy} of service `{name}` is not called: no provider reports an endpoint at {addresses}"
        );
        let spot = Some(self.service.spot.clone());
        Finding::warning(PROXY_WITHOUT_ENDPOINT, spot, message).object(record.id).help(format!(
            "register an endpoint there with a provider; if the provider reports the machine at another address, enroll the proxy with that address: `ironmesh proxy bootstrap --service {name} --address {} --known-as … …`",
            record.mesh_address.ip()
        ))
    }
}
