//! The effect of a policy change: which shared resources may compile differently.
//!
//! First it finds the changed objects, which costs as much as the change. Then it finds, in the old
//! and in the new snapshot, what these objects affect. Everything else is unchanged, because it
//! follows from unchanged objects.

use std::collections::BTreeSet;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use ironmesh_catalog::telemetries::Telemetries;
use ironmesh_catalog::{
    HttpRoute, IngressBackend, Level, MeshSpecification, Name, OpenCallers, Reach, RouteRule,
    Service, ServiceAccount, ServiceName, Snapshot, SplitMatch, TrafficSplit, TrafficTarget, hosts,
};

use crate::index::PolicyIndex;

/// Namespace and name of a policy object.
type ObjectKey = (Name, Name);

/// The differences in policy between two snapshots, including the modes of services.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Differences {
    /// Services that may look different to their callers, to their own proxies or to collectors.
    services: BTreeSet<ServiceName>,
    /// Targets that grant something else.
    targets: BTreeSet<ObjectKey>,
    groups: BTreeSet<ObjectKey>,
    tcp_routes: BTreeSet<ObjectKey>,
    /// The services whose splits differ.
    split: BTreeSet<ServiceName>,
    /// The levels of HTTP routes and retries that differ.
    treated: BTreeSet<Level>,
    /// The services whose ingress differs.
    ingress_changed: BTreeSet<ServiceName>,
    /// The services whose telemetry differs.
    telemetry_changed: BTreeSet<ServiceName>,
    egresses: BTreeSet<ObjectKey>,
    /// The namespaces whose calls to the outside pass, or passed, by a different rule.
    passing: BTreeSet<Name>,
}

/// The accounts and services whose resources may compile differently.
#[derive(Debug, Default)]
pub(super) struct Touched {
    /// Changed services: their clusters, and the own resources of proxies that serve them or have
    /// them as an upstream.
    pub(super) services: BTreeSet<ServiceName>,
    /// Services whose inbound routes may differ.
    pub(super) served: BTreeSet<ServiceName>,
    /// Services whose ingress differs: the listeners of their proxies.
    pub(super) ingress_changed: BTreeSet<ServiceName>,
    /// Services whose telemetry differs. Telemetry is in listeners, which are a proxy's own, so no
    /// shared resource differs.
    pub(super) telemetry_changed: BTreeSet<ServiceName>,
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
            ingress_changed: keys(&old.ingress_rules, &new.ingress_rules)
                .into_iter()
                .map(|port| port.service)
                .collect(),
            telemetry_changed: telemetry_changed(old, new),
            egresses: keys(&before.egresses, &after.egresses),
            passing: passing(old, new),
        }
    }

    /// Whether both snapshots have the same policy, apart from endpoints and source locations.
    pub(super) fn are_none(&self) -> bool {
        *self == Self::default()
    }

    /// The effect of the differences, given both snapshots with their indexes.
    pub(super) fn touch(self, snapshots: [(&Snapshot, &PolicyIndex); 2]) -> Touched {
        let mut touched = Touched {
            served: self.services.clone(),
            telemetry_changed: self.telemetry_changed.clone(),
            ..Touched::default()
        };
        for (snapshot, index) in snapshots {
            self.touch_by_targets(snapshot, index, &mut touched);
            self.touch_by_services(snapshot, index, &mut touched);
            self.touch_by_egresses(snapshot, &mut touched);
            self.touch_by_ingress(snapshot, &mut touched);
        }
        touched.namespaces.extend(self.passing.iter().cloned());
        Touched { services: self.services, ingress_changed: self.ingress_changed, ..touched }
    }

    /// A grant affects the inbound routes of its destinations, and the scopes of its sources.
    fn touch_by_targets(&self, snapshot: &Snapshot, index: &PolicyIndex, touched: &mut Touched) {
        for (key, grant) in snapshot.grants.by_target() {
            let differs = self.targets.contains(key) || self.have_tcp_route_of(&grant.target);
            let has_changed_matches = self.have_group_of(&grant.target);
            if !differs && !has_changed_matches {
                continue;
            }
            let services = || grant.destinations.iter().flat_map(|one| index.services_of(one));
            touched.served.extend(services().cloned());
            // Callers need the requests of a grant only for external services.
            let is_outside =
                |name| snapshot.service(name).is_some_and(|one| one.external.is_some());
            if differs || services().any(is_outside) {
                touched.callers.extend(grant.sources.iter().cloned());
            }
        }
    }

    /// A service is visible to its callers, and to callers of services that splits link with it.
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
            match service.open_callers(snapshot.mode_of(service)) {
                Some(OpenCallers::All) => touched.all_callers = true,
                Some(OpenCallers::Namespace(namespace)) => {
                    touched.namespaces.insert(namespace.clone());
                }
                None => {}
            }
        }
    }

    /// The services whose treatments may differ.
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

    /// An egress affects only its sources.
    fn touch_by_egresses(&self, snapshot: &Snapshot, touched: &mut Touched) {
        for (key, egress) in &snapshot.specification.egresses {
            let mut groups = egress.matches.iter().map(|named| &named.group);
            let differs = self.egresses.contains(key)
                || groups.any(|group| has(&self.groups, &egress.namespace, group));
            if differs {
                touched.callers.extend(egress.sources.iter().cloned());
            }
        }
    }

    /// The inbound routes contain who may call from outside, and with which requests.
    fn touch_by_ingress(&self, snapshot: &Snapshot, touched: &mut Touched) {
        touched.served.extend(self.ingress_changed.iter().cloned());
        let policies = snapshot.specification.ingress_backends.values();
        let has_changed_matches = |policy: &&Arc<IngressBackend>| {
            let mut groups = policy.matches.iter().map(|named| &named.group);
            groups.any(|group| has(&self.groups, &policy.namespace, group))
        };
        let backends = policies.filter(has_changed_matches).flat_map(|policy| &policy.backends);
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
    /// Whether the scope of `account` may differ.
    pub(super) fn is_caller(&self, account: &ServiceAccount) -> bool {
        self.all_callers
            || self.callers.contains(account)
            || self.namespaces.contains(&account.namespace)
    }
}

/// The services that differ.
fn services(old: &Snapshot, new: &Snapshot) -> BTreeSet<ServiceName> {
    let (before, after) = (&old.specification, &new.specification);
    let mut services = BTreeSet::new();
    let mut added_or_removed = BTreeSet::new();
    for item in before.services.diff(&after.services) {
        let DiffItem::Update { old: (name, before), new: (_, after) } = item else {
            let known = sides(&item).into_iter().flatten();
            added_or_removed.extend(known.map(|service| service.name.clone()));
            continue;
        };
        if !before.is_same_to_callers(after) {
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
    if !added_or_removed.is_empty() {
        // An external service cannot use a name that a service of the mesh has.
        let is_named_alike = |service: &&Arc<Service>| {
            let hostname = service.external.as_ref().and_then(|one| one.hostname.as_ref());
            let name = hostname.and_then(|hostname| hosts::short_name(hostname.as_str()));
            name.is_some_and(|name| added_or_removed.contains(&name))
        };
        let named_alike = after.services.values().filter(is_named_alike);
        services.extend(named_alike.map(|service| service.name.clone()));
    }
    services.append(&mut added_or_removed);
    services.extend(services_with_settings(old, new));
    // A subset is called in plaintext if the whole may be.
    let subsets = |name| {
        let known = [old.service(name), new.service(name)].into_iter().flatten();
        known.flat_map(|service| &service.subsets)
    };
    let parts: Vec<_> = services.iter().flat_map(subsets).cloned().collect();
    services.extend(parts);
    services
}

/// The levels of changed objects that treat calls.
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

/// The services with changed upstream traffic settings.
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

/// The services whose telemetry differs.
fn telemetry_changed(old: &Snapshot, new: &Snapshot) -> BTreeSet<ServiceName> {
    let (before, after) = (&old.specification, &new.specification);
    if before.telemetries == after.telemetries {
        return BTreeSet::new();
    }
    let (before, after_it) = (Telemetries::of(before), Telemetries::of(after));
    let names = after.services.keys();
    names.filter(|name| !before.are_same_for(&after_it, name)).cloned().collect()
}

/// The namespaces of accounts whose calls to the outside pass in only one of the snapshots; and
/// those in which they pass while a service is added, removed or changed: names of the mesh or of
/// an external service do not pass.
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
    let accounts =
        [old, new].into_iter().flat_map(|snapshot| snapshot.specification.services.values());
    let namespaces: BTreeSet<_> =
        accounts.map(|service| service.account.namespace.clone()).collect();
    let differs = |namespace: &Name| {
        let passes = [old, new].map(|snapshot| snapshot.passes_through(namespace));
        passes[0] != passes[1] || (passes[1] && !same_names)
    };
    namespaces.into_iter().filter(differs).collect()
}

fn has(keys: &BTreeSet<ObjectKey>, namespace: &Name, name: &Name) -> bool {
    !keys.is_empty() && keys.contains(&(namespace.clone(), name.clone()))
}

/// The keys whose values differ between two maps.
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

/// The values of both maps at one key.
fn sides<'a, K, V>(item: &DiffItem<'a, 'a, K, V>) -> [Option<&'a V>; 2] {
    match *item {
        DiffItem::Add(_, new) => [None, Some(new)],
        DiffItem::Remove(_, old) => [Some(old), None],
        DiffItem::Update { old: (_, old), new: (_, new) } => [Some(old), Some(new)],
    }
}
