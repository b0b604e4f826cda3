//! Which reads have another result in the next snapshot.
//!
//! Each arm compares what resources can contain of the results of the method that records the read. Source locations,
//! which only findings cite, do not count. Maps that both snapshots share answer at once.

use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use ironmesh_catalog::{Mode, Name, Service, ServiceName};

use super::{IndexedSnapshot, external_ports, namespaces};
use crate::index::PolicyIndex;
use crate::reads::{ChangedReads, Read, ReadTable};

impl IndexedSnapshot {
    /// The reads in `table` of compiled pieces whose results differ between this snapshot and the next one. Pieces
    /// themselves are marked when they are compiled again.
    pub(crate) fn changed_reads(&self, next: &Self, table: &ReadTable) -> ChangedReads {
        let comparison = Comparison::new(self, next);
        let mut changed = if comparison.is_of_policy() {
            table.changed(|read| comparison.differs(read))
        } else {
            ChangedReads::default()
        };
        let mut mark = |read: Read| table.mark(&read, &mut changed);
        let (old, new) = (&*self.snapshot, &*next.snapshot);
        let (before, after) = (&old.specification.services, &new.specification.services);
        for name in keys_by(before, after, |old, new| old.upstreams == new.upstreams) {
            mark(Read::Upstreams(name));
        }
        for port in keys(&old.ingress_rules, &new.ingress_rules) {
            mark(Read::IngressRules(port));
        }
        for port in keys(&old.tcp_accesses.ports, &new.tcp_accesses.ports) {
            mark(Read::TcpAccess(port));
        }
        for account in keys(&old.certificates, &new.certificates) {
            mark(Read::Certificate(account));
        }
        if old.trust_bundle != new.trust_bundle {
            mark(Read::TrustBundle);
        }
        let (before, after) = (&old.revoked_callers, &new.revoked_callers);
        if !Arc::ptr_eq(before, after) {
            if before.dns_names != after.dns_names {
                mark(Read::RevokedNames);
            }
            if before.lists != after.lists {
                mark(Read::RevocationLists);
            }
            for account in before.last_listed.keys().chain(after.last_listed.keys()) {
                if before.last_listed.get(account) != after.last_listed.get(account) {
                    mark(Read::LastListed(account.clone()));
                }
            }
        }
        changed
    }
}

/// Two snapshots, with the parts of policy that may differ between them.
#[expect(clippy::struct_excessive_bools, reason = "one for each part of policy")]
struct Comparison<'a> {
    old: &'a IndexedSnapshot,
    new: &'a IndexedSnapshot,
    index: bool,
    services: bool,
    modes: bool,
    egress: bool,
    grants: bool,
    groups: bool,
    tcp_routes: bool,
    splits: bool,
    treatments: bool,
    settings: bool,
    egresses: bool,
    ingress_backends: bool,
    telemetries: bool,
}

impl<'a> Comparison<'a> {
    fn new(old: &'a IndexedSnapshot, new: &'a IndexedSnapshot) -> Self {
        let index = !Arc::ptr_eq(&old.index, &new.index);
        let (before, after) = (&old.snapshot.specification, &new.snapshot.specification);
        let namespaces = !before.namespaces.ptr_eq(&after.namespaces);
        let services = index && !before.services.ptr_eq(&after.services);
        let groups = index && !before.http_route_groups.ptr_eq(&after.http_route_groups);
        let split = !before.traffic_splits.ptr_eq(&after.traffic_splits);
        let routes = !before.http_routes.ptr_eq(&after.http_routes);
        let retries = !before.retries.ptr_eq(&after.retries);
        let settings = !before.upstream_traffic_settings.ptr_eq(&after.upstream_traffic_settings);
        Self {
            old,
            new,
            index,
            services,
            modes: index && (services || namespaces || old.snapshot.mode != new.snapshot.mode),
            egress: namespaces || old.snapshot.egress != new.snapshot.egress,
            grants: !old.snapshot.grants.are_same_as(&new.snapshot.grants),
            groups,
            tcp_routes: index && !before.tcp_routes.ptr_eq(&after.tcp_routes),
            splits: index && (services || groups || split),
            treatments: index && (groups || routes || retries),
            settings: index && settings,
            egresses: index && !before.egresses.ptr_eq(&after.egresses),
            ingress_backends: index && !before.ingress_backends.ptr_eq(&after.ingress_backends),
            telemetries: index && !before.telemetries.ptr_eq(&after.telemetries),
        }
    }

    /// Whether the results of reads may differ whose keys do not follow from the difference of a map.
    fn is_of_policy(&self) -> bool {
        self.index || self.egress || self.grants
    }

    fn both<T>(&self, result: impl Fn(&'a IndexedSnapshot) -> T) -> [T; 2] {
        [result(self.old), result(self.new)]
    }

    fn differ<T: PartialEq>(&self, result: impl Fn(&'a IndexedSnapshot) -> T) -> bool {
        let [old, new] = self.both(result);
        old != new
    }

    fn differ_in_index<T: PartialEq>(&self, result: impl Fn(&'a PolicyIndex) -> T) -> bool {
        self.differ(|one| result(&one.index))
    }

    fn service(&self, name: &ServiceName) -> [Option<&'a Service>; 2] {
        self.both(|one| one.snapshot.service(name).map(|service| &**service))
    }

    /// Whether the result of a read differs.
    fn differs(&self, read: &Read) -> bool {
        match read {
            Read::Service(name) => self.services && self.service_differs(name),
            Read::Mode(name) => self.modes && self.differ(|one| mode(one, name)),
            Read::Plaintext(name) => {
                let has = |one: &IndexedSnapshot| {
                    let service = one.snapshot.service(name);
                    service.map(|service| one.snapshot.has_plaintext(service))
                };
                self.modes && self.differ(has)
            }
            Read::ExternalHosts => {
                self.services
                    && self.differ(|one| external_ports(&one.snapshot).collect::<Vec<_>>())
            }
            Read::Namespaces => self.services && self.differ(|one| namespaces(&one.snapshot)),
            Read::Passthrough(namespace) => {
                self.egress && self.differ(|one| one.snapshot.passes_through(namespace))
            }
            Read::Permissive(namespace) => {
                let ports = |index: &'a PolicyIndex| {
                    index.permissive(namespace.as_ref()).collect::<Vec<_>>()
                };
                self.modes && self.differ_in_index(ports)
            }
            Read::ServicesOf(account) => {
                self.services && self.differ_in_index(|index| index.services_of(account))
            }
            Read::GrantsOn(account) => {
                self.grants && self.differ(|one| one.snapshot.grants.on(account))
            }
            Read::GrantsTo(account) => {
                self.grants && self.differ(|one| one.snapshot.grants.to(account))
            }
            Read::RouteGroup(namespace, name) => {
                let key = key(namespace, name);
                let groups = |one: &'a IndexedSnapshot| {
                    one.snapshot.specification.http_route_groups.get(&key)
                };
                self.groups && self.differ(groups)
            }
            Read::TcpRoute(namespace, name) => {
                let key = key(namespace, name);
                self.tcp_routes
                    && self.differ(|one| one.snapshot.specification.tcp_routes.get(&key))
            }
            Read::Destination(port) => {
                self.splits && self.differ_in_index(|index| index.splits().destination(port))
            }
            Read::Apexes(port) => {
                self.splits && self.differ_in_index(|index| index.splits().apexes(port))
            }
            Read::Treatments(service) => {
                let [old, new] = self.both(|one| one.index.http_routes());
                self.treatments && !old.are_same_for(new, service)
            }
            Read::NamedCaller(account) => {
                self.treatments && self.differ_in_index(|index| index.http_routes().names_caller(account))
            }
            Read::Settings(service) => {
                let [old, new] = self.both(|one| one.index.upstream_settings());
                self.settings && !old.are_same_for(new, service)
            }
            Read::Egresses(account) => {
                self.egresses && self.differ_in_index(|index| index.egresses(account))
            }
            Read::IngressBackend(namespace, name) => {
                let key = key(namespace, name);
                let backend = |one: &'a IndexedSnapshot| {
                    one.snapshot.specification.ingress_backends.get(&key)
                };
                self.ingress_backends && self.differ(backend)
            }
            Read::Telemetry(service) => {
                let [old, new] = self.both(|one| one.index.telemetries());
                self.telemetries && !old.are_same_for(new, service)
            }
            // Marked by the differences of their maps.
            Read::Upstreams(_)
            | Read::IngressRules(_)
            | Read::TcpAccess(_)
            | Read::Certificate(_)
            | Read::TrustBundle
            | Read::RevokedNames
            | Read::RevocationLists
            | Read::LastListed(_)
            // Marked when the piece is compiled again.
            | Read::Cluster(_)
            | Read::InboundRoutes(_)
            | Read::TcpAuthorization(_)
            | Read::ByCaller(_)
            | Read::Scope(_)
            | Read::View(_)
            | Read::AgentFedView(_)
            | Read::UpstreamRoutes(..) => false,
        }
    }

    fn service_differs(&self, name: &ServiceName) -> bool {
        match self.service(name) {
            [Some(old), Some(new)] => !std::ptr::eq(old, new) && !old.is_same_to_callers(new),
            [old, new] => old.is_some() != new.is_some(),
        }
    }
}

fn mode(one: &IndexedSnapshot, name: &ServiceName) -> Option<Mode> {
    one.snapshot.service(name).map(|service| one.snapshot.mode_of(service))
}

fn key(namespace: &Name, name: &Name) -> (Name, Name) {
    (namespace.clone(), name.clone())
}

/// The keys whose values differ between two maps.
pub(crate) fn keys<K: Ord + Clone, V: PartialEq>(old: &OrdMap<K, V>, new: &OrdMap<K, V>) -> Vec<K> {
    keys_by(old, new, V::eq)
}

/// The keys that only one of two maps has, or whose values are not the same.
fn keys_by<K: Ord + Clone, V: PartialEq>(
    old: &OrdMap<K, V>,
    new: &OrdMap<K, V>,
    is_same: impl Fn(&V, &V) -> bool,
) -> Vec<K> {
    if old.ptr_eq(new) {
        return Vec::new();
    }
    let key = |item| match item {
        DiffItem::Add(key, _) | DiffItem::Remove(key, _) => Some(K::clone(key)),
        DiffItem::Update { old: (_, old), new: (key, new) } => {
            (!is_same(old, new)).then(|| key.clone())
        }
    };
    old.diff(new).filter_map(key).collect()
}
