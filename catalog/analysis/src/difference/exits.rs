//! What accounts may call outside of the mesh, and might before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use ironmesh_catalog::allowed_traffic::AllowedTraffic;
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::policy::{Egress, EgressProtocol};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::access::{Turn, Who};

/// What becomes of a way to call the outside.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ExitChange {
    /// Whose way it is.
    #[serde(rename = "callers")]
    pub who: Who,
    /// Where it leads, in words: a host or a range of addresses, with the port; or anywhere.
    pub to: String,
    /// Whether it is new or is no more.
    #[serde(rename = "change")]
    pub turn: Turn,
    /// The way.
    pub way: AllowedTraffic,
    /// The egresses that grant it, or did; none where all calls pass.
    pub by: Vec<Cited>,
}

/// Who, where to, and what may be asked there.
type Exit = (Who, String, AllowedTraffic);

pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<ExitChange> {
    let (old, new) = (all(before), all(after));
    let keys: BTreeSet<_> = old.keys().chain(new.keys()).collect();
    let change = |exit: &Exit| {
        let (turn, by) = match (old.get(exit), new.get(exit)) {
            (Some(by), None) => (Turn::Lost, by),
            (None, Some(by)) => (Turn::Gained, by),
            _ => return None,
        };
        let (who, to, way) = exit.clone();
        Some(ExitChange { who, to, turn, way, by: by.clone() })
    };
    keys.into_iter().filter_map(change).collect()
}

fn all(snapshot: &Snapshot) -> BTreeMap<Exit, Vec<Cited>> {
    let specification = &snapshot.specification;
    let mut all: BTreeMap<Exit, Vec<Cited>> = BTreeMap::new();
    let accounts = specification.services.values().map(|service| &service.account);
    let namespaces: BTreeSet<_> = accounts.map(|account| &account.namespace).collect();
    for namespace in namespaces.into_iter().filter(|one| snapshot.passes_through(one)) {
        for way in [AllowedTraffic::EveryRequest, AllowedTraffic::Connections] {
            let who = Who::AllOf(namespace.clone());
            all.entry((who, "anywhere outside of the mesh".to_owned(), way)).or_default();
        }
    }
    for egress in specification.egresses.values() {
        let cited = Cited::egress(egress);
        // What lets all pass lets these pass as well.
        let sources = egress.sources.iter();
        let sources = sources.filter(|source| !snapshot.passes_through(&source.namespace));
        for source in sources {
            for (to, way) in exits(snapshot, egress) {
                let exit = (Who::Account(source.clone()), to, way);
                all.entry(exit).or_default().push(cited.clone());
            }
        }
    }
    all
}

/// Where an egress leads, and what may be asked there.
fn exits(snapshot: &Snapshot, egress: &Egress) -> Vec<(String, AllowedTraffic)> {
    let mut exits = Vec::new();
    let ranges: Vec<_> = egress.ip_addresses.iter().map(ToString::to_string).collect();
    for port in &egress.ports {
        let ways = match port.protocol {
            EgressProtocol::Http => requests(snapshot, egress),
            EgressProtocol::Https | EgressProtocol::Tcp => vec![AllowedTraffic::Connections],
        };
        let (number, protocol) = (port.number, port.protocol);
        let mut add = |place: String| {
            exits.extend(ways.iter().map(|way| (place.clone(), way.clone())));
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
    exits
}

fn requests(snapshot: &Snapshot, egress: &Egress) -> Vec<AllowedTraffic> {
    if egress.matches.is_empty() {
        return vec![AllowedTraffic::EveryRequest];
    }
    let requests = egress.requests(&snapshot.specification);
    let ways: BTreeSet<_> = requests.map(|(_, one)| AllowedTraffic::from(one)).collect();
    ways.into_iter().collect()
}
