//! Who may call what, and who might before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ironmesh_catalog::allowed_traffic::AllowedTraffic;
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::grants::Grant;
use ironmesh_catalog::name::{Name, ServiceAccount, ServicePort};
use ironmesh_catalog::service::{Mode, Port, Service, Visibility};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

use super::widening::{by_method, includes, wider};

/// What becomes of an account's way to call a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessChange {
    /// The service port.
    pub port: ServicePort,
    /// Whose access changes.
    #[serde(rename = "callers")]
    pub who: Who,
    /// What becomes of the way.
    #[serde(rename = "change")]
    pub turn: Turn,
    /// The way.
    pub way: AllowedTraffic,
    /// The traffic targets that grant it, or did; none where it is the mode.
    pub by: Vec<Cited>,
    /// The mode of the service that lets it through, or did; none where it is a target.
    pub mode: Option<String>,
}

/// What becomes of a way to call.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Turn {
    /// It was there, and is not any more.
    Lost,
    /// It is what is left of a wider way that is lost.
    Kept,
    /// It was not there.
    Gained,
}

/// Who may call.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Who {
    /// Every account of the mesh: permissive and audit mode.
    Everybody,
    /// Every account of a namespace: the same of a service that only this one knows.
    #[serde(rename = "namespace")]
    AllOf(Name),
    /// One account.
    Account(ServiceAccount),
}

impl Who {
    /// The groups of which it is one, from the smallest up.
    fn groups(&self) -> Vec<Self> {
        match self {
            Self::Everybody => Vec::new(),
            Self::AllOf(_) => vec![Self::Everybody],
            Self::Account(account) => {
                vec![Self::AllOf(account.namespace.clone()), Self::Everybody]
            }
        }
    }
}

impl fmt::Display for Who {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Everybody => f.write_str("every account of the mesh"),
            Self::AllOf(namespace) => write!(f, "every account of namespace {namespace}"),
            Self::Account(account) => account.fmt(f),
        }
    }
}

/// The ways of each, with what grants them.
type Accesses = BTreeMap<Who, GrantedTraffic>;

type GrantedTraffic = BTreeMap<AllowedTraffic, By>;

/// What grants a way: targets, or the mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct By {
    targets: Vec<Cited>,
    mode: Option<String>,
}

/// What is gained and lost. To call a part of a service is to call the service, so it is told of that alone
/// (unless it was or becomes a service of its own). An expression that is another is one way lost and another gained, whatever the
/// two have in common; what still follows from a wider way is not lost.
pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<AccessChange> {
    let is_own = |snapshot: &Snapshot, port: &ServicePort| {
        snapshot.service(&port.service).is_some_and(|service| !service.is_subset())
    };
    let is_told = |port: &&ServicePort| is_own(before, port) || is_own(after, port);
    let (all_before, all_after) = (all(before), all(after));
    let ports = all_before.keys().chain(all_after.keys());
    let ports: BTreeSet<_> = ports.filter(is_told).collect();
    let nothing = Accesses::new();
    let mut changes = Vec::new();
    for port in ports {
        let (old, new) =
            (all_before.get(port).unwrap_or(&nothing), all_after.get(port).unwrap_or(&nothing));
        if old == new {
            continue;
        }
        let known = changes.len();
        let lost = ways(old).filter(|(who, way, _)| !covers(new, who, way));
        changes.extend(lost.map(|way| change(port, Turn::Lost, way)));
        let is_any_lost = changes.len() > known;
        for (who, way, by) in ways(new) {
            let turn = if !covers(old, who, way) {
                Turn::Gained
            } else if is_any_lost && has_wider(old, who, way) && !has_wider(new, who, way) {
                Turn::Kept
            } else {
                continue;
            };
            changes.push(change(port, turn, (who, way, by)));
        }
    }
    changes.sort_by(|a, b| {
        let key = |one: &AccessChange| (one.port.clone(), one.who.clone(), one.turn);
        (key(a), &a.way).cmp(&(key(b), &b.way))
    });
    joined(changes)
}

/// A way of somebody, with what grants it.
type Granted<'a> = (&'a Who, &'a AllowedTraffic, &'a By);

fn ways(accesses: &Accesses) -> impl Iterator<Item = Granted<'_>> {
    accesses.iter().flat_map(|(who, ways)| ways.iter().map(move |(way, by)| (who, way, by)))
}

fn change(port: &ServicePort, turn: Turn, (who, way, by): Granted<'_>) -> AccessChange {
    let By { targets, mode } = by.clone();
    let (port, who) = (port.clone(), who.clone());
    AccessChange { port, who, turn, way: way.clone(), by: targets, mode }
}

/// Whether somebody, by themselves or as one of a group, has this way or a wider one.
fn covers(accesses: &Accesses, who: &Who, way: &AllowedTraffic) -> bool {
    accesses.get(who).is_some_and(|ways| ways.contains_key(way)) || has_wider(accesses, who, way)
}

/// Whether somebody has a wider way, or a group that they are of has this one or a wider one.
fn has_wider(accesses: &Accesses, who: &Who, way: &AllowedTraffic) -> bool {
    let of = |who: &Who| accesses.get(who);
    of(who).is_some_and(|ways| have_wider(ways, way, |other| other != way))
        || who.groups().iter().filter_map(of).any(|ways| have_wider(ways, way, |_| true))
}

/// Whether one of these that `counts` includes `way`. Where they are many, it is asked for those that would.
fn have_wider(
    ways: &GrantedTraffic,
    way: &AllowedTraffic,
    counts: impl Fn(&AllowedTraffic) -> bool,
) -> bool {
    match wider(way, ways.len()) {
        Some(wider) => wider.iter().any(|other| counts(other) && ways.contains_key(other)),
        None => ways.keys().any(|other| counts(other) && includes(other, way)),
    }
}

/// Puts ways together again that differ in their methods alone.
fn joined(changes: Vec<AccessChange>) -> Vec<AccessChange> {
    let mut joined: Vec<AccessChange> = Vec::new();
    let mut known = BTreeMap::new();
    for change in changes {
        let key = match &change.way {
            AllowedTraffic::Requests { methods, path, headers } if !methods.is_empty() => {
                let AccessChange { port, who, turn, by, mode, .. } = change.clone();
                (port, who, turn, by, mode, path.clone(), headers.clone())
            }
            _ => {
                joined.push(change);
                continue;
            }
        };
        let place = *known.entry(key).or_insert(joined.len());
        match (joined.get_mut(place).map(|same| &mut same.way), change.way) {
            (
                Some(AllowedTraffic::Requests { methods, .. }),
                AllowedTraffic::Requests { methods: more, .. },
            ) => {
                methods.extend(more);
            }
            (_, way) => joined.push(AccessChange { way, ..change }),
        }
    }
    joined
}

/// Who may call each service port.
fn all(snapshot: &Snapshot) -> BTreeMap<ServicePort, Accesses> {
    let mut all = BTreeMap::new();
    for service in snapshot.specification.services.values() {
        for (service_port, port) in service.service_ports() {
            let mut accesses = Accesses::new();
            match snapshot.mode_of(service) {
                Mode::Permissive | Mode::Audit => {
                    let is_http = port.protocol.is_http();
                    let way = if is_http {
                        AllowedTraffic::EveryRequest
                    } else {
                        AllowedTraffic::Connections
                    };
                    let who = match service.visibility {
                        Visibility::Public => Who::Everybody,
                        Visibility::Private => Who::AllOf(service.name.namespace.clone()),
                    };
                    let mode = Some(snapshot.mode_of(service).to_string());
                    accesses.entry(who).or_default().insert(way, By { mode, ..By::default() });
                }
                Mode::Strict => {
                    for grant in snapshot.grants.on(&service.account) {
                        add(snapshot, grant, service, port, &mut accesses);
                    }
                }
            }
            all.insert(service_port, accesses);
        }
    }
    all
}

fn add(snapshot: &Snapshot, grant: &Grant, service: &Service, port: &Port, to: &mut Accesses) {
    let key = (grant.target.namespace.clone(), grant.target.name.clone());
    let written = snapshot.specification.traffic_targets.get(&key);
    let target = written.unwrap_or(&grant.target);
    let rules = snapshot.specification.allowing_rules(target, port);
    let ways: BTreeSet<_> = rules.flat_map(|rule| by_method(rule.traffic())).collect();
    let sources = grant.sources.iter();
    for source in sources.filter(|source| service.is_visible_in(&source.namespace)) {
        let known = to.entry(Who::Account(source.clone())).or_default();
        for way in &ways {
            known.entry(way.clone()).or_default().targets.push(Cited::target(target));
        }
    }
}
