//! Who may call what, and who might before.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::grants::Grant;
use crate::name::{Name, ServiceAccount, ServicePort};
use crate::service::{Mode, Port, Service, Visibility};
use crate::snapshot::Snapshot;
use crate::way::{Cited, Way, allowances};

/// What becomes of an account's way to call a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessChange {
    /// The service port.
    pub port: ServicePort,
    /// Whose access changes.
    pub who: Who,
    /// What becomes of the way.
    pub turn: Turn,
    /// The way.
    pub way: Way,
    /// The traffic targets that grant it, or did; none where it is the mode.
    pub by: Vec<Cited>,
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
type Accesses = BTreeMap<Who, BTreeMap<Way, Vec<Cited>>>;

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
        let lost = ways(old).filter(|(who, way, _)| !covers(new, who, way));
        changes.extend(lost.map(|way| change(port, Turn::Lost, way)));
        for (who, way, by) in ways(new) {
            let turn = if !covers(old, who, way) {
                Turn::Gained
            } else if has_wider(old, who, way) && !has_wider(new, who, way) {
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
type Granted<'a> = (&'a Who, &'a Way, &'a Vec<Cited>);

fn ways(accesses: &Accesses) -> impl Iterator<Item = Granted<'_>> {
    accesses.iter().flat_map(|(who, ways)| ways.iter().map(move |(way, by)| (who, way, by)))
}

fn change(port: &ServicePort, turn: Turn, (who, way, by): Granted<'_>) -> AccessChange {
    let (port, who) = (port.clone(), who.clone());
    AccessChange { port, who, turn, way: way.clone(), by: by.clone() }
}

/// Whether somebody, by themselves or as one of a group, has this way or a wider one.
fn covers(accesses: &Accesses, who: &Who, way: &Way) -> bool {
    accesses.get(who).is_some_and(|ways| ways.contains_key(way)) || has_wider(accesses, who, way)
}

/// Whether somebody has a wider way, or a group that they are of has this one or a wider one.
fn has_wider(accesses: &Accesses, who: &Who, way: &Way) -> bool {
    let includes = |of: &Who| {
        let mut ways = accesses.get(of).into_iter().flat_map(BTreeMap::keys);
        ways.any(|other| (of != who || other != way) && other.includes(way))
    };
    includes(who) || who.groups().iter().any(includes)
}

/// Puts ways together again that differ in their methods alone.
fn joined(changes: Vec<AccessChange>) -> Vec<AccessChange> {
    let mut joined: Vec<AccessChange> = Vec::new();
    for mut change in changes {
        let same = joined.iter_mut().rev().take_while(|last| last.port == change.port);
        let mut same = same.filter(|last| {
            (&last.who, last.turn, &last.by) == (&change.who, change.turn, &change.by)
        });
        let is_taken = same.any(|last| match (&mut last.way, &mut change.way) {
            (
                Way::Requests { methods, path, headers },
                Way::Requests { methods: more, path: of_path, headers: of_headers },
            ) if !methods.is_empty()
                && !more.is_empty()
                && (&*path, &*headers) == (&*of_path, &*of_headers) =>
            {
                methods.append(more);
                true
            }
            _ => false,
        });
        if !is_taken {
            joined.push(change);
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
                    let way = if is_http { Way::EveryRequest } else { Way::Connections };
                    let who = match service.visibility {
                        Visibility::Public => Who::Everybody,
                        Visibility::Private => Who::AllOf(service.name.namespace.clone()),
                    };
                    accesses.entry(who).or_default().insert(way, Vec::new());
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
    let ways: BTreeSet<_> = allowances(&snapshot.specification, target, port)
        .into_iter()
        .flat_map(|allowance| allowance.way().by_method())
        .collect();
    let sources = grant.sources.iter();
    for source in sources.filter(|source| service.is_visible_in(&source.namespace)) {
        let known = to.entry(Who::Account(source.clone())).or_default();
        for way in &ways {
            known.entry(way.clone()).or_default().push(Cited::target(target));
        }
    }
}
