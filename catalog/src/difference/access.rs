//! Who may call what, and who might before.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};

use crate::grants::Grant;
use crate::name::{ServiceAccount, ServicePort};
use crate::service::Mode;
use crate::snapshot::Snapshot;
use crate::way::{Cited, Way, allowances};

/// What becomes of an account's way to call a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct AccessChange {
    /// The service port.
    pub port: ServicePort,
    /// Whose access changes; that of every account of the mesh where left out, which is permissive mode.
    pub account: Option<ServiceAccount>,
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
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Who {
    /// All accounts of the mesh.
    Everybody,
    Account(ServiceAccount),
}

/// The ways of each, with what grants them.
type Accesses = BTreeMap<Who, BTreeMap<Way, Vec<Cited>>>;

/// What is gained and lost. An expression that is another is one way lost and another gained, whatever the
/// two have in common; what still follows from a wider way is not lost.
pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<AccessChange> {
    let (before, after) = (all(before), all(after));
    let ports: BTreeSet<_> = before.keys().chain(after.keys()).collect();
    let nothing = Accesses::new();
    let mut changes = Vec::new();
    for port in ports {
        let (old, new) =
            (before.get(port).unwrap_or(&nothing), after.get(port).unwrap_or(&nothing));
        let lost = ways(old).filter(|(account, way, _)| !covers(new, account, way));
        changes.extend(lost.map(|way| change(port, Turn::Lost, way)));
        for (account, way, by) in ways(new) {
            let turn = if !covers(old, account, way) {
                Turn::Gained
            } else if has_wider(old, account, way) && !has_wider(new, account, way) {
                Turn::Kept
            } else {
                continue;
            };
            changes.push(change(port, turn, (account, way, by)));
        }
    }
    changes.sort_by(|a, b| {
        let key = |one: &AccessChange| (one.port.clone(), one.account.clone(), one.turn);
        (key(a), &a.way).cmp(&(key(b), &b.way))
    });
    joined(changes)
}

/// A way of an account, with what grants it.
type Granted<'a> = (&'a Who, &'a Way, &'a Vec<Cited>);

fn ways(accesses: &Accesses) -> impl Iterator<Item = Granted<'_>> {
    accesses.iter().flat_map(|(account, ways)| ways.iter().map(move |(way, by)| (account, way, by)))
}

fn change(port: &ServicePort, turn: Turn, (account, way, by): Granted<'_>) -> AccessChange {
    let account = match account {
        Who::Everybody => None,
        Who::Account(account) => Some(account.clone()),
    };
    let port = port.clone();
    AccessChange { port, account, turn, way: way.clone(), by: by.clone() }
}

/// Whether an account, by itself or as everybody, has this way or a wider one.
fn covers(accesses: &Accesses, account: &Who, way: &Way) -> bool {
    accesses.get(account).is_some_and(|ways| ways.contains_key(way))
        || has_wider(accesses, account, way)
}

/// Whether an account has a wider way, or everybody has this one or a wider one.
fn has_wider(accesses: &Accesses, account: &Who, way: &Way) -> bool {
    let includes = |of: &Who| {
        let mut ways = accesses.get(of).into_iter().flat_map(BTreeMap::keys);
        ways.any(|other| (of != account || other != way) && other.includes(way))
    };
    includes(account) || includes(&Who::Everybody)
}

/// Puts ways together again that differ in their methods alone.
fn joined(changes: Vec<AccessChange>) -> Vec<AccessChange> {
    let mut joined: Vec<AccessChange> = Vec::new();
    for mut change in changes {
        let same = joined.iter_mut().rev().take_while(|last| last.port == change.port);
        let mut same = same.filter(|last| {
            (&last.account, last.turn, &last.by) == (&change.account, change.turn, &change.by)
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
    let mut grants: BTreeMap<&ServiceAccount, Vec<&Grant>> = BTreeMap::new();
    for grant in snapshot.grants.by_target.values() {
        for destination in &grant.destinations {
            grants.entry(destination).or_default().push(grant);
        }
    }
    let mut all = BTreeMap::new();
    for service in snapshot.specification.services.values() {
        for (service_port, port) in service.service_ports() {
            let mut accesses = Accesses::new();
            match snapshot.mode_of(service) {
                Mode::Permissive => {
                    let is_http = port.protocol.is_http();
                    let way = if is_http { Way::EveryRequest } else { Way::Connections };
                    accesses.entry(Who::Everybody).or_default().insert(way, Vec::new());
                }
                Mode::Strict => {
                    for grant in grants.get(&service.account).into_iter().flatten() {
                        add(snapshot, grant, port, &mut accesses);
                    }
                }
            }
            all.insert(service_port, accesses);
        }
    }
    all
}

fn add(snapshot: &Snapshot, grant: &Grant, port: &crate::service::Port, to: &mut Accesses) {
    let key = (grant.target.namespace.clone(), grant.target.name.clone());
    let written = snapshot.specification.traffic_targets.get(&key);
    let target = written.unwrap_or(&grant.target);
    let ways: BTreeSet<_> = allowances(&snapshot.specification, target, port)
        .into_iter()
        .flat_map(|allowance| allowance.way.by_method())
        .collect();
    for source in &grant.sources {
        let known = to.entry(Who::Account(source.clone())).or_default();
        for way in &ways {
            known.entry(way.clone()).or_default().push(Cited::target(target));
        }
    }
}
