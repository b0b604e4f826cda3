//! Differences in access: which accounts may call which service ports, before and after.
//!
//! This module owns the comparison of grants and modes. It never decides what a rule allows.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt;

use ironmesh_catalog::allowed_traffic::AllowedTraffic;
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::grants::Grant;
use ironmesh_catalog::name::{Name, ServiceAccount, ServicePort};
use ironmesh_catalog::service::{OpenCallers, Port, Service};
use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::widening::{by_method, includes, wider};
use crate::written_target::written_target;

/// A change of the traffic that an account may send to a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessChange {
    /// The service port.
    pub port: ServicePort,
    /// The accounts whose access changes.
    pub callers: CallerGroup,
    /// Whether the access is gained, lost or kept.
    #[serde(rename = "change")]
    pub delta: AccessDelta,
    /// The traffic that is allowed.
    pub traffic: AllowedTraffic,
    /// The traffic targets that grant it, or granted it; none if the mode does.
    pub by: Vec<Cited>,
    /// The mode of the service that allows it, or allowed it; none if a target does.
    pub mode: Option<String>,
}

/// Whether access is gained, lost or kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessDelta {
    /// It was allowed before, and is not allowed after.
    Lost,
    /// It remains of wider access that is lost.
    Kept,
    /// It was not allowed before.
    Gained,
}

/// The accounts to which access applies.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum CallerGroup {
    /// Every account of the mesh: permissive and audit mode.
    All,
    /// Every account of a namespace: permissive and audit mode of a private service.
    Namespace(Name),
    /// One account.
    Account(ServiceAccount),
}

impl CallerGroup {
    /// The groups that contain it, from the smallest up.
    fn groups(&self) -> Vec<Self> {
        match self {
            Self::All => Vec::new(),
            Self::Namespace(_) => vec![Self::All],
            Self::Account(account) => {
                vec![Self::Namespace(account.namespace.clone()), Self::All]
            }
        }
    }
}

impl From<OpenCallers<'_>> for CallerGroup {
    fn from(callers: OpenCallers<'_>) -> Self {
        match callers {
            OpenCallers::All => Self::All,
            OpenCallers::Namespace(namespace) => Self::Namespace(namespace.clone()),
        }
    }
}

impl fmt::Display for CallerGroup {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::All => f.write_str("every account of the mesh"),
            Self::Namespace(namespace) => write!(f, "every account of namespace {namespace}"),
            Self::Account(account) => account.fmt(f),
        }
    }
}

/// The traffic that each group of callers may send, with the grants.
type Accesses = BTreeMap<CallerGroup, GrantedTraffic>;

type GrantedTraffic = BTreeMap<AllowedTraffic, GrantedBy>;

/// The source of access: traffic targets, or the mode.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
struct GrantedBy {
    targets: Vec<Cited>,
    mode: Option<String>,
}

/// The gained and lost access.
///
/// A call of a subset is a call of its service, so only the service is listed, unless the subset was or becomes a
/// service of its own. A changed expression is lost and gained access, whatever the two expressions share. Access
/// that still follows from a wider rule is not lost.
pub(super) fn changes(before: &Snapshot, after: &Snapshot) -> Vec<AccessChange> {
    let is_own = |snapshot: &Snapshot, port: &ServicePort| {
        snapshot.service(&port.service).is_some_and(|service| !service.is_subset())
    };
    let is_listed = |port: &&ServicePort| is_own(before, port) || is_own(after, port);
    let (all_before, all_after) = (all(before), all(after));
    let ports = all_before.keys().chain(all_after.keys());
    let ports: BTreeSet<_> = ports.filter(is_listed).collect();
    let none = Accesses::new();
    let mut changes = Vec::new();
    for port in ports {
        let (old, new) =
            (all_before.get(port).unwrap_or(&none), all_after.get(port).unwrap_or(&none));
        if old == new {
            continue;
        }
        let count = changes.len();
        let lost = granted(old).filter(|(callers, traffic, _)| !covers(new, callers, traffic));
        changes.extend(lost.map(|granted| change(port, AccessDelta::Lost, granted)));
        let is_any_lost = changes.len() > count;
        for (callers, traffic, by) in granted(new) {
            let delta = if !covers(old, callers, traffic) {
                AccessDelta::Gained
            } else if is_any_lost
                && has_wider(old, callers, traffic)
                && !has_wider(new, callers, traffic)
            {
                AccessDelta::Kept
            } else {
                continue;
            };
            changes.push(change(port, delta, (callers, traffic, by)));
        }
    }
    changes.sort_by(|a, b| {
        let key = |one: &AccessChange| (one.port.clone(), one.callers.clone(), one.delta);
        (key(a), &a.traffic).cmp(&(key(b), &b.traffic))
    });
    merge_methods(changes)
}

/// The access of one group of callers, with its source.
type Granted<'a> = (&'a CallerGroup, &'a AllowedTraffic, &'a GrantedBy);

fn granted(accesses: &Accesses) -> impl Iterator<Item = Granted<'_>> {
    accesses
        .iter()
        .flat_map(|(callers, all)| all.iter().map(move |(traffic, by)| (callers, traffic, by)))
}

fn change(
    port: &ServicePort,
    delta: AccessDelta,
    (callers, traffic, by): Granted<'_>,
) -> AccessChange {
    let GrantedBy { targets, mode } = by.clone();
    let (port, callers) = (port.clone(), callers.clone());
    AccessChange { port, callers, delta, traffic: traffic.clone(), by: targets, mode }
}

/// Whether these callers have this or wider access, by themselves or as members of a group.
fn covers(accesses: &Accesses, callers: &CallerGroup, traffic: &AllowedTraffic) -> bool {
    accesses.get(callers).is_some_and(|all| all.contains_key(traffic))
        || has_wider(accesses, callers, traffic)
}

/// Whether these callers have wider access, or a group that contains them has this or wider access.
fn has_wider(accesses: &Accesses, callers: &CallerGroup, traffic: &AllowedTraffic) -> bool {
    let of = |callers: &CallerGroup| accesses.get(callers);
    of(callers).is_some_and(|all| have_wider(all, traffic, |other| other != traffic))
        || callers.groups().iter().filter_map(of).any(|all| have_wider(all, traffic, |_| true))
}

/// Whether one of these that `counts` includes `traffic`. If there are many, it looks up the possible wider
/// rules, which costs less than comparing all.
fn have_wider(
    all: &GrantedTraffic,
    traffic: &AllowedTraffic,
    counts: impl Fn(&AllowedTraffic) -> bool,
) -> bool {
    match wider(traffic, all.len()) {
        Some(wider) => wider.iter().any(|other| counts(other) && all.contains_key(other)),
        None => all.keys().any(|other| counts(other) && includes(other, traffic)),
    }
}

/// Merges changes that differ only in their methods.
fn merge_methods(changes: Vec<AccessChange>) -> Vec<AccessChange> {
    let mut merged: Vec<AccessChange> = Vec::new();
    let mut known = BTreeMap::new();
    for change in changes {
        let key = match &change.traffic {
            AllowedTraffic::Requests { methods, path, headers } if !methods.is_empty() => {
                let AccessChange { port, callers, delta, by, mode, .. } = change.clone();
                (port, callers, delta, by, mode, path.clone(), headers.clone())
            }
            _ => {
                merged.push(change);
                continue;
            }
        };
        let index = *known.entry(key).or_insert(merged.len());
        match (merged.get_mut(index).map(|same| &mut same.traffic), change.traffic) {
            (
                Some(AllowedTraffic::Requests { methods, .. }),
                AllowedTraffic::Requests { methods: more, .. },
            ) => {
                methods.extend(more);
            }
            (_, traffic) => merged.push(AccessChange { traffic, ..change }),
        }
    }
    merged
}

/// The access to each service port.
fn all(snapshot: &Snapshot) -> BTreeMap<ServicePort, Accesses> {
    let mut all = BTreeMap::new();
    for service in snapshot.specification.services.values() {
        for (service_port, port) in service.service_ports() {
            let mut accesses = Accesses::new();
            let mode = snapshot.mode_of(service);
            match service.open_callers(mode) {
                Some(callers) => {
                    let is_http = port.protocol.is_http();
                    let traffic = if is_http {
                        AllowedTraffic::EveryRequest
                    } else {
                        AllowedTraffic::Connections
                    };
                    let callers = CallerGroup::from(callers);
                    let mode = Some(mode.to_string());
                    accesses
                        .entry(callers)
                        .or_default()
                        .insert(traffic, GrantedBy { mode, ..GrantedBy::default() });
                }
                None => {
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

/// Adds the access that one grant gives to a service port.
fn add(snapshot: &Snapshot, grant: &Grant, service: &Service, port: &Port, to: &mut Accesses) {
    let target = written_target(snapshot, grant);
    let rules = snapshot.specification.allowing_rules(target, port);
    let granted: BTreeSet<_> = rules.flat_map(|rule| by_method(rule.traffic())).collect();
    let sources = grant.sources.iter();
    for source in sources.filter(|source| service.is_visible_in(&source.namespace)) {
        let known = to.entry(CallerGroup::Account(source.clone())).or_default();
        for traffic in &granted {
            known.entry(traffic.clone()).or_default().targets.push(Cited::target(target));
        }
    }
}
