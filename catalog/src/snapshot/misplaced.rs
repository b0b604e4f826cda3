//! Findings about the endpoints of a service, from how these stand.

use std::net::IpAddr;

use super::classifier::EndpointClassifier;
use super::endpoint_status::{EndpointStatus, ExclusionReason, State};
use crate::codes::{PROXY_SUSPECTED, PROXY_WITHOUT_ENDPOINT};
use crate::endpoint::Endpoint;
use crate::finding::{Code, Finding};
use crate::proxy::JoinRecord;
use crate::proxy_index::ProxyIndex;

/// An endpoint in front of which there is no proxy.
const ENDPOINT_WITHOUT_PROXY: Code = Code(404);

/// An endpoint in front of which there may be several proxies.
const ENDPOINT_WITH_SEVERAL_PROXIES: Code = Code(405);

/// So many of a kind are told one by one.
const FEW: usize = 3;

/// Whether an endpoint has no proxy, and nobody knows why.
fn is_without(standing: &EndpointStatus) -> bool {
    let (State::Plaintext(why) | State::Out(why)) = &standing.state else { return false };
    matches!(why, ExclusionReason::NoProxy | ExclusionReason::Expired)
}

/// The first few of `all` addresses.
fn some_of(addresses: impl Iterator<Item = IpAddr>, all: usize) -> String {
    let some: Vec<_> = addresses.take(FEW).map(|address| address.to_string()).collect();
    format!("{} and {} more", some.join(", "), all.saturating_sub(some.len()))
}

impl EndpointClassifier<'_> {
    /// What is wrong with the endpoints of the service. `endpoints` are none where no provider has said yet
    /// what there is.
    pub(super) fn findings(&self, endpoints: Option<&[Endpoint]>) -> Vec<Finding> {
        // What is wrong with the endpoints of a part is told of the whole; outside there are no proxies; and
        // of what is taken out of service nobody wants to know.
        if self.service.is_subset() || self.service.external.is_some() || self.is_drained {
            return Vec::new();
        }
        let past = ProxyIndex::default();
        let known = endpoints.unwrap_or_default();
        let endpoint_statuses: Vec<_> =
            known.iter().map(|endpoint| self.stand(endpoint, &past)).collect();
        let (without, others): (Vec<_>, Vec<_>) =
            endpoint_statuses.iter().partition(|one| is_without(one));
        let is_crowd = without.len() > FEW;
        let crowd = is_crowd.then(|| self.crowd_without_proxies(&without));
        let each = without.into_iter().filter(|_| !is_crowd).chain(others);
        let misplaced = each.filter_map(|standing| self.misplaced(standing)).chain(crowd);
        let misplaced = misplaced.chain(self.excluded(known));
        let suspects = self.suspects(&endpoint_statuses);
        let is_told = endpoints.is_some() && !self.service.ports.is_empty();
        let alone = if is_told { self.without(known) } else { Vec::new() };
        let alone = alone.into_iter().filter(|record| record.suspect_since.is_none());
        let alone: Vec<_> = alone.collect();
        let alone = if alone.len() > FEW {
            vec![self.crowd_without_endpoints(&alone)]
        } else {
            alone.into_iter().map(|record| self.without_endpoint(record)).collect()
        };
        misplaced.chain(suspects).chain(alone).collect()
    }

    /// Many endpoints without a proxy, told at once: a whole service may not have joined yet.
    fn crowd_without_proxies(&self, endpoint_statuses: &[&EndpointStatus]) -> Finding {
        let name = &self.service.name;
        let is_plaintext = |one: &&&EndpointStatus| matches!(one.state, State::Plaintext(_));
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
            some_of(addresses, endpoint_statuses.len())
        );
        let help = format!(
            "enroll proxies: `ironmesh proxy bootstrap --service {name} --address … …`; `ironmesh endpoints {name}` lists them all"
        );
        Finding::warning(ENDPOINT_WITHOUT_PROXY, None, message).help(help)
    }

    /// Many proxies without an endpoint, told at once: a provider may have lost all of a service.
    fn crowd_without_endpoints(&self, records: &[&JoinRecord]) -> Finding {
        let name = &self.service.name;
        let addresses = records.iter().map(|record| record.mesh_address.ip());
        let message = format!(
            "{} proxies of service `{name}` are not called: no provider reports an endpoint at their addresses: {}",
            records.len(),
            some_of(addresses, records.len())
        );
        let spot = Some(self.service.spot.clone());
        Finding::warning(PROXY_WITHOUT_ENDPOINT, spot, message).help(format!(
            "register endpoints there with a provider; `ironmesh endpoints {name}` lists the proxies"
        ))
    }

    fn misplaced(&self, standing: &EndpointStatus) -> Option<Finding> {
        let (why, what) = match &standing.state {
            State::Participant | State::Outside => return None,
            State::Plaintext(why) => (why, "is called in plaintext"),
            State::Out(why) => (why, "gets no traffic"),
        };
        let endpoint = standing.endpoint.as_ref()?;
        let (address, name) = (endpoint.address, &self.service.name);
        let message = format!("endpoint {address} of service `{name}` {what}:");
        let of_proxy = |what: &str| {
            let id = standing.proxy.map(|id| id.to_string()).unwrap_or_default();
            format!("{message} proxy {id} {what}")
        };
        let machine = endpoint.machine.map(|machine| format!(" --azure-vm-id {machine}"));
        let machine = machine.unwrap_or_default();
        let enroll = |whom: &str| {
            format!(
                "enroll {whom}: `ironmesh proxy bootstrap --service {name} --address {address}{machine} …`"
            )
        };
        let without = |message, help: String| {
            Some(Finding::warning(ENDPOINT_WITHOUT_PROXY, None, message).help(help))
        };
        match why {
            // One that joined and is not there yet is no news, unless somebody is called in plaintext for it.
            ExclusionReason::Unclaimed
            | ExclusionReason::NotTaken { .. }
            | ExclusionReason::Unheard { .. } => {
                let is_plaintext = matches!(standing.state, State::Plaintext(_));
                let help = "start its Envoy, or see what it NACKed: `ironmesh proxy list`";
                let message = of_proxy("is enrolled there and has not ACKed this service yet");
                is_plaintext.then(|| without(message, help.to_owned())).flatten()
            }
            ExclusionReason::NoProxy | ExclusionReason::Expired => {
                without(format!("{message} {}", ExclusionReason::NoProxy), enroll("a proxy"))
            }
            ExclusionReason::SeveralProxies { .. } => {
                let message = format!("{message} {why}");
                Some(Finding::warning(ENDPOINT_WITH_SEVERAL_PROXIES, None, message))
            }
            ExclusionReason::Revoked => {
                without(of_proxy("at its address was revoked"), enroll("a new proxy"))
            }
            // It is the proxy of which this is told.
            // The last are reported by `excluded`.
            ExclusionReason::Suspect { .. }
            | ExclusionReason::NoEndpoint
            | ExclusionReason::Drained
            | ExclusionReason::Excluded { .. } => None,
        }
    }

    /// One for each proxy that may be dead, and in whose place no other has come.
    fn suspects(&self, endpoint_statuses: &[EndpointStatus]) -> Vec<Finding> {
        let is_replaced = |record: &JoinRecord| {
            let mut others = self.in_front.all();
            others.any(|one| one.mesh_address == record.mesh_address && one.suspect_since.is_none())
        };
        let suspects = self.in_front.all().filter(|record| record.suspect_since.is_some());
        let suspects = suspects.filter(|record| !is_replaced(record));
        let finding = |record: &JoinRecord| {
            let (id, name) = (record.id, &self.service.name);
            let since = record.suspect_since?;
            let is_withdrawn = endpoint_statuses.iter().any(|one| {
                one.proxy == Some(id)
                    && matches!(one.state, State::Out(ExclusionReason::Suspect { .. }))
            });
            let what = if is_withdrawn {
                "callers do not use it"
            } else {
                "callers use it while the provider of its endpoint reports that endpoint"
            };
            let message = format!(
                "proxy {id} at {} of service `{name}` is unreachable: it has had no xDS stream since {since:.0}; {what}",
                record.mesh_address
            );
            let help = format!(
                "start its machine and its Envoy, or fix the network between it and the control plane; if it is gone for good: `ironmesh proxy revoke {id}`"
            );
            Some(Finding::warning(PROXY_SUSPECTED, None, message).help(help))
        };
        suspects.filter_map(|record| finding(record)).collect()
    }

    fn without_endpoint(&self, record: &JoinRecord) -> Finding {
        let (id, name) = (record.id, &self.service.name);
        let addresses: Vec<_> = record.known_as().iter().map(ToString::to_string).collect();
        let machine = record.machine.map(|machine| format!(", nor on machine {machine}"));
        let addresses = format!("{}{}", addresses.join(" and "), machine.unwrap_or_default());
        let message = format!(
            "proxy {id} of service `{name}` is not called: no provider reports an endpoint at {addresses}"
        );
        let spot = Some(self.service.spot.clone());
        Finding::warning(PROXY_WITHOUT_ENDPOINT, spot, message).help(format!(
            "register an endpoint there with a provider; if the provider reports the machine at another address, enroll the proxy with that address: `ironmesh proxy bootstrap --service {name} --address {} --known-as … …`",
            record.mesh_address.ip()
        ))
    }
}
