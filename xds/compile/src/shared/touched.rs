//! What a change of policy touches: of all that proxies share, what may come out otherwise.
//!
//! First what policy says otherwise is found, which costs as much as it is; then, in the moment before
//! and in the one after, whom that is about. What comes out of neither is as it was, since it follows from
//! things that are said as before.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{
    HttpRoute, IngressBackend, Level, MeshSpecification, Name, Reach, RouteRule, Service,
    ServiceAccount, ServiceName, Snapshot, SplitMatch, TrafficSplit, TrafficTarget, Visibility,
    hosts,
};

use crate::index::PolicyIndex;

/// Namespace and name of an object of policy.
type Key = (Name, Name);

/// What policy says otherwise at another moment, the modes of services included.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// What can be told of these services, by those who call them, serve them or are told of them.
    services: BTreeSet<ServiceName>,
    /// Targets that grant something else.
    targets: BTreeSet<Key>,
    groups: BTreeSet<Key>,
    tcp_routes: BTreeSet<Key>,
    /// The services whose splits differ.
    split: BTreeSet<ServiceName>,
    /// What HTTP routes are about that differ, and retries.
    treated: BTreeSet<Level>,
    /// The services that somebody else may call from outside of the mesh, or in another way.
    let_in: BTreeSet<ServiceName>,
    /// The services whose sidecars tell something else.
    telling: BTreeSet<ServiceName>,
    egresses: BTreeSet<Key>,
    /// The namespaces whose calls to the outside pass, or passed, for another reason than before.
    passing: BTreeSet<Name>,
}

/// What may be compiled to something else.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Services that are not what they were: their clusters, and what is a proxy's own that serves them or
    /// has them as an upstream.
    pub(super) services: BTreeSet<ServiceName>,
    /// Whose inbound routes.
    pub(super) served: BTreeSet<ServiceName>,
    /// Services to which others are let in from outside of the mesh: where their proxies listen for them.
    pub(super) let_in: BTreeSet<ServiceName>,
    /// Services whose proxies tell something else of calls. That is in listeners, which are a proxy's own, and
    /// so nothing that is shared is another.
    pub(super) telling: BTreeSet<ServiceName>,
    callers: BTreeSet<ServiceAccount>,
    /// All callers of these namespaces.
    namespaces: BTreeSet<Name>,
    all_callers: bool,
}

impl Differences {
    pub(super) fn between(old: &Snapshot, new: &Snapshot) -> Self {
        let (before, after) = (&old.specification, &new.specification);
        let splits = before.traffic_splits.diff(&after.traffic_splits);
        let splits = splits.flat_map(|item| sides(&item)).flatten();
        Self {
            services: services(old, new),
            targets: keys(old.grants.by_target(), new.grants.by_target()),
            groups: keys(&before.http_route_groups, &after.http_route_groups),
            tcp_routes: keys(&before.tcp_routes, &after.tcp_routes),
            split: splits.map(|split| split.service.clone()).collect(),
            treated: treated(before, after),
            let_in: keys(&old.ways_in, &new.ways_in).into_iter().map(|port| port.service).collect(),
            telling: telling(old, new),
            egresses: keys(&before.egresses, &after.egresses),
            passing: passing(old, new),
        }
    }

    /// Whether both moments have the same policy, but for where endpoints are and where it is written.
    pub(super) fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// What that touches, given both moments with their indexes.
    pub(super) fn touch(self, moments: [(&Snapshot, &PolicyIndex); 2]) -> Touched {
        let mut touched = Touched {
            served: self.services.clone(),
            telling: self.telling.clone(),
            ..Touched::default()
        };
        for (snapshot, index) in moments {
            self.touch_by_targets(snapshot, index, &mut touched);
            self.touch_by_services(snapshot, index, &mut touched);
            self.touch_by_egresses(snapshot, &mut touched);
            self.touch_by_ingress(snapshot, &mut touched);
        }
        touched.namespaces.extend(self.passing.iter().cloned());
        Touched { services: self.services, let_in: self.let_in, ..touched }
    }

    /// A grant is about the inbound routes of those who may be called, and about what callers may.
    fn touch_by_targets(&self, snapshot: &Snapshot, index: &PolicyIndex, touched: &mut Touched) {
        for (key, grant) in snapshot.grants.by_target() {
            let is_other = self.targets.contains(key) || self.have_tcp_route_of(&grant.target);
            let is_about_other_requests = self.have_group_of(&grant.target);
            if !is_other && !is_about_other_requests {
                continue;
            }
            let services = || grant.destinations.iter().flat_map(|one| index.services_of(one));
            touched.served.extend(services().cloned());
            // What requests a grant is about, callers need to know of external services alone.
            let is_outside =
                |name| snapshot.service(name).is_some_and(|one| one.external.is_some());
            if is_other || services().any(is_outside) {
                touched.callers.extend(grant.sources.iter().cloned());
            }
        }
    }

    /// A service is known to those who may call it, or one that it is linked with by splits.
    fn touch_by_services(&self, snapshot: &Snapshot, index: &PolicyIndex, touched: &mut Touched) {
        let splits = snapshot.specification.traffic_splits.values();
        let by_groups = splits.filter(|split| self.have_group_of_split(split));
        let by_groups = by_groups.map(|split| &split.service);
        let treated = self.treated_services(snapshot);
        let linked =
            index.linked(self.services.iter().chain(&self.split).chain(by_groups).chain(treated));
        for service in linked.into_iter().filter_map(|name| snapshot.service(name)) {
            let grants = index.grants_on(&service.account).iter();
            touched.callers.extend(grants.flat_map(|grant| &grant.sources).cloned());
            if !snapshot.mode_of(service).lets_all_in() {
                continue;
            }
            match service.visibility {
                Visibility::Public => touched.all_callers = true,
                Visibility::Private => {
                    touched.namespaces.insert(service.name.namespace.clone());
                }
            }
        }
    }

    /// The services whose calls may be treated otherwise.
    fn treated_services<'a>(
        &self,
        snapshot: &'a Snapshot,
    ) -> impl Iterator<Item = &'a ServiceName> {
        let MeshSpecification { services, http_routes, .. } = &*snapshot.specification;
        let by_groups = http_routes.values().filter_map(|route| match &route.reach {
            Reach::Requests(service, matches) if self.have_group_of_route(route, matches) => {
                Some(service)
            }
            _ => None,
        });
        let of_all = self.treated.contains(&Level::Mesh);
        let is_treated = move |service: &&ServiceName| {
            of_all
                || self.treated.contains(&Level::Namespace(service.namespace.clone()))
                || self.treated.contains(&Level::Service((*service).clone()))
        };
        let is_any = !self.treated.is_empty();
        let treated = services.keys().take_while(move |_| is_any).filter(is_treated);
        treated.chain(by_groups)
    }

    fn have_group_of_route(&self, route: &HttpRoute, matches: &[SplitMatch]) -> bool {
        matches.iter().any(|named| has(&self.groups, &route.namespace, &named.group))
    }

    /// Of egresses callers alone are told.
    fn touch_by_egresses(&self, snapshot: &Snapshot, touched: &mut Touched) {
        for (key, egress) in &snapshot.specification.egresses {
            let mut groups = egress.matches.iter().map(|named| &named.group);
            let is_other = self.egresses.contains(key)
                || groups.any(|group| has(&self.groups, &egress.namespace, group));
            if is_other {
                touched.callers.extend(egress.sources.iter().cloned());
            }
        }
    }

    /// Who is let in from outside, and what they may ask for, is said by the inbound routes.
    fn touch_by_ingress(&self, snapshot: &Snapshot, touched: &mut Touched) {
        touched.served.extend(self.let_in.iter().cloned());
        let policies = snapshot.specification.ingress_backends.values();
        let is_about_other_requests = |policy: &&Arc<IngressBackend>| {
            let mut groups = policy.matches.iter().map(|named| &named.group);
            groups.any(|group| has(&self.groups, &policy.namespace, group))
        };
        let backends = policies.filter(is_about_other_requests).flat_map(|policy| &policy.backends);
        touched.served.extend(backends.map(|backend| backend.port.service.clone()));
    }

    fn have_tcp_route_of(&self, target: &TrafficTarget) -> bool {
        let is_one = |rule: &RouteRule| match rule {
            RouteRule::Http { .. } => false,
            RouteRule::Tcp { route, .. } => has(&self.tcp_routes, &target.namespace, route),
        };
        target.rules.iter().any(is_one)
    }

    fn have_group_of(&self, target: &TrafficTarget) -> bool {
        let is_one = |rule: &RouteRule| match rule {
            RouteRule::Http { group, .. } => has(&self.groups, &target.namespace, group),
            RouteRule::Tcp { .. } => false,
        };
        target.rules.iter().any(is_one)
    }

    fn have_group_of_split(&self, split: &TrafficSplit) -> bool {
        split.matches.iter().any(|named| has(&self.groups, &split.namespace, &named.group))
    }
}

impl Touched {
    /// Whether what `account` needs to call others may be another.
    pub(super) fn is_caller(&self, account: &ServiceAccount) -> bool {
        self.all_callers
            || self.callers.contains(account)
            || self.namespaces.contains(&account.namespace)
    }
}

/// The services of which something else can be told.
fn services(old: &Snapshot, new: &Snapshot) -> BTreeSet<ServiceName> {
    let (before, after) = (&old.specification, &new.specification);
    let mut services = BTreeSet::new();
    let mut come_or_gone = BTreeSet::new();
    for item in before.services.diff(&after.services) {
        let DiffItem::Update { old: (name, before), new: (_, after) } = item else {
            let known = sides(&item).into_iter().flatten();
            come_or_gone.extend(known.map(|service| service.name.clone()));
            continue;
        };
        if !before.differs_in_endpoints_only(after) {
            services.insert(name.clone());
        }
    }
    if old.mode != new.mode || before.namespaces != after.namespaces {
        let has_other_mode = |service: &&Arc<Service>| {
            let known = old.service(&service.name);
            known.is_some_and(|known| old.mode_of(known) != new.mode_of(service))
        };
        let others = after.services.values().filter(has_other_mode);
        services.extend(others.map(|service| service.name.clone()));
    }
    if !come_or_gone.is_empty() {
        // An external service is called by no name that one of the mesh has.
        let is_called_so = |service: &&Arc<Service>| {
            let hostname = service.external.as_ref().and_then(|one| one.hostname.as_ref());
            let name = hostname.and_then(|hostname| hosts::short_name(hostname.as_str()));
            name.is_some_and(|name| come_or_gone.contains(&name))
        };
        let called_so = after.services.values().filter(is_called_so);
        services.extend(called_so.map(|service| service.name.clone()));
    }
    services.append(&mut come_or_gone);
    services.extend(services_with_settings(old, new));
    // A part is called in plaintext where the whole may be.
    let subsets = |name| {
        let known = [old.service(name), new.service(name)].into_iter().flatten();
        known.flat_map(|service| &service.subsets)
    };
    let parts: Vec<_> = services.iter().flat_map(subsets).cloned().collect();
    services.extend(parts);
    services
}

/// What the objects are about that say otherwise how calls are treated.
fn treated(before: &MeshSpecification, after: &MeshSpecification) -> BTreeSet<Level> {
    let routes = before.http_routes.diff(&after.http_routes);
    let routes = routes.flat_map(|item| sides(&item)).flatten().map(|route| match &route.reach {
        Reach::Requests(service, _) => Level::Service(service.clone()),
        Reach::All(level) => level.clone(),
    });
    let retries = before.retries.diff(&after.retries);
    let retries = retries.flat_map(|item| sides(&item)).flatten();
    let retried = retries.flat_map(|retry| &retry.destinations);
    routes.chain(retried.map(|one| Level::Service(one.service.clone()))).collect()
}

/// The services that upstream traffic settings are about which say something else.
fn services_with_settings(old: &Snapshot, new: &Snapshot) -> BTreeSet<ServiceName> {
    let (before, after) = (&old.specification, &new.specification);
    let differ = before.upstream_traffic_settings.diff(&after.upstream_traffic_settings);
    let mut services = BTreeSet::new();
    for setting in differ.flat_map(|item| sides(&item)).flatten() {
        let of_these = |name: &&ServiceName| match &setting.level {
            Level::Service(service) => *name == service,
            Level::Namespace(namespace) => name.namespace == *namespace,
            Level::Mesh => true,
        };
        services.extend(after.services.keys().filter(of_these).cloned());
    }
    services
}

/// The services whose sidecars tell something else of calls.
fn telling(old: &Snapshot, new: &Snapshot) -> BTreeSet<ServiceName> {
    let (before, after) = (&old.specification, &new.specification);
    if before.telemetries == after.telemetries {
        return BTreeSet::new();
    }
    let (before, after_it) = (Telemetries::of(before), Telemetries::of(after));
    let names = after.services.keys();
    names.filter(|name| !before.are_same_for(&after_it, name)).cloned().collect()
}

/// The namespaces of accounts whose calls to the outside pass in one moment and not in the other; and those
/// in which they pass where a service comes, goes or is another: what is of the mesh, or of an external
/// service, does not pass.
fn passing(old: &Snapshot, new: &Snapshot) -> BTreeSet<Name> {
    let (before, after) = (&old.specification, &new.specification);
    let same_services = before.services.ptr_eq(&after.services);
    if same_services && old.egress == new.egress && before.namespaces == after.namespaces {
        return BTreeSet::new();
    }
    let is_same = |item: DiffItem<'_, '_, ServiceName, Arc<Service>>| match item {
        DiffItem::Update { old: (_, old), new: (_, new) } => {
            (&old.external, &old.ports) == (&new.external, &new.ports)
        }
        DiffItem::Add(..) | DiffItem::Remove(..) => false,
    };
    let same_names = before.services.diff(&after.services).all(is_same);
    let accounts = [old, new].into_iter().flat_map(|moment| moment.specification.services.values());
    let namespaces: BTreeSet<_> =
        accounts.map(|service| service.account.namespace.clone()).collect();
    let is_other = |namespace: &Name| {
        let passes = [old, new].map(|moment| moment.passes_through(namespace));
        passes[0] != passes[1] || (passes[1] && !same_names)
    };
    namespaces.into_iter().filter(is_other).collect()
}

fn has(keys: &BTreeSet<Key>, namespace: &Name, name: &Name) -> bool {
    !keys.is_empty() && keys.contains(&(namespace.clone(), name.clone()))
}

/// The keys of what differs between two maps.
pub(super) fn keys<K: Ord + Clone, V: PartialEq>(
    old: &OrdMap<K, V>,
    new: &OrdMap<K, V>,
) -> BTreeSet<K> {
    let key = |item| match item {
        DiffItem::Add(key, _)
        | DiffItem::Remove(key, _)
        | DiffItem::Update { new: (key, _), .. } => K::clone(key),
    };
    old.diff(new).map(key).collect()
}

/// What two maps have at one key.
fn sides<'a, K, V>(item: &DiffItem<'a, 'a, K, V>) -> [Option<&'a V>; 2] {
    match *item {
        DiffItem::Add(_, new) => [None, Some(new)],
        DiffItem::Remove(_, old) => [Some(old), None],
        DiffItem::Update { old: (_, old), new: (_, new) } => [Some(old), Some(new)],
    }
}
