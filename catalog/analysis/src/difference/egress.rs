//! Differences in egress: what accounts may call outside the mesh, before and after.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ironmesh_catalog::allowed_traffic::AllowedTraffic;
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::policy::{Egress, EgressProtocol};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::access::{AccessDelta, CallerGroup};

/// A change of the traffic that an account may send to a destination outside the mesh.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EgressChange {
    /// The accounts whose egress changes.
    pub callers: CallerGroup,
    /// The destination in words: a host or a range of addresses with the port, or any destination.
    pub to: String,
    /// Whether it is gained or lost.
    #[serde(rename = "change")]
    pub delta: AccessDelta,
    /// The traffic that is allowed.
    pub traffic: AllowedTraffic,
    /// The egresses that grant it, or granted it; none for `passthrough`.
    pub by: Vec<Cited>,
}

/// The callers, the destination in words and the allowed traffic.
type EgressKey = (CallerGroup, String, AllowedTraffic);

pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<EgressChange> {
    let (old, new) = (all(before), all(after));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let change = |key: &EgressKey| {
        let (delta, by) = match (old.get(key), new.get(key)) {
            (Some(by), None) => (AccessDelta::Lost, by),
            (None, Some(by)) => (AccessDelta::Gained, by),
            _ => return None,
        };
        let (callers, to, traffic) = key.clone();
        Some(EgressChange { callers, to, delta, traffic, by: by.clone() })
    };
    keys.into_iter().filter_map(change).collect()
}

fn all(snapshot: &Snapshot) -> BTreeMap<EgressKey, Vec<Cited>> {
    let specification = &snapshot.specification;
    let mut all: BTreeMap<EgressKey, Vec<Cited>> = BTreeMap::new();
    let accounts = specification.services.values().map(|service| &service.account);
    let namespaces: BTreeSet<_> = accounts.map(|account| &account.namespace).collect();
    for namespace in namespaces.into_iter().filter(|one| snapshot.passes_through(one)) {
        for traffic in [AllowedTraffic::EveryRequest, AllowedTraffic::Connections] {
            let callers = CallerGroup::Namespace(namespace.clone());
            all.entry((callers, "anywhere outside of the mesh".to_owned(), traffic)).or_default();
        }
    }
    for egress in specification.egresses.values() {
        let cited = Cited::egress(egress);
        // Passthrough allows everything that an egress could.
        let sources = egress.sources.iter();
        let sources = sources.filter(|source| !snapshot.passes_through(&source.namespace));
        for source in sources {
            for (to, traffic) in destinations(snapshot, egress) {
                let key = (CallerGroup::Account(source.clone()), to, traffic);
                all.entry(key).or_default().push(cited.clone());
            }
        }
    }
    all
}

/// The destinations of an egress in words, with the allowed traffic.
fn destinations(snapshot: &Snapshot, egress: &Egress) -> Vec<(String, AllowedTraffic)> {
    let mut destinations = Vec::new();
    let ranges: Vec<_> = egress.ip_addresses.iter().map(ToString::to_string).collect();
    for port in &egress.ports {
        let all = match port.protocol {
            EgressProtocol::Http => requests(snapshot, egress),
            EgressProtocol::Https | EgressProtocol::Tcp => vec![AllowedTraffic::Connections],
        };
        let (number, protocol) = (port.number, port.protocol);
        let mut add = |place: String| {
            destinations.extend(all.iter().map(|traffic| (place.clone(), traffic.clone())));
        };
        for host in &egress.hosts {
            let mut place = format!("{host}, port {number} ({protocol})");
            if !ranges.is_empty() {
                // (Writing to a string does not fail.)
                let _ = write!(place, ", where it is in {}", ranges.join(" or "));
            }
            add(place);
        }
        for range in ranges.iter().filter(|_| egress.hosts.is_empty()) {
            add(format!("{range}, port {number} ({protocol})"));
        }
    }
    destinations
}

fn requests(snapshot: &Snapshot, egress: &Egress) -> Vec<AllowedTraffic> {
    if egress.matches.is_empty() {
        return vec![AllowedTraffic::EveryRequest];
    }
    let requests = egress.requests(&snapshot.specification);
    let all: BTreeSet<_> = requests.map(|(_, one)| AllowedTraffic::from(one)).collect();
    all.into_iter().collect()
}
