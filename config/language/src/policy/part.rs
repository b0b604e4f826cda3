//! A part: what one document says, whatever the others say. It remembers names apart from what they
//! name, so that one broken object does not make its callers look broken too.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{
    Egress, Finding, HttpRoute, HttpRouteGroup, IdentityBinding, IngressBackend, MeshSpecification,
    Name, Namespace, Retry, Service, ServiceAccount, ServiceName, Spot, TcpRoute, Telemetry,
    TrafficSplit, TrafficTarget, UpstreamTrafficSetting,
};

use super::damage::Damage;
use crate::table::{Table, Told, Value};

/// Namespace and name.
pub(super) type Key = (Name, Name);

/// What one document says.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) findings: Vec<Finding>,
    /// Whether there are more than these.
    pub(super) has_more: bool,
    pub(super) namespaces: Definitions<Namespace>,
    pub(super) services: Definitions<Service>,
    pub(super) traffic_targets: Definitions<TrafficTarget>,
    pub(super) http_route_groups: Definitions<HttpRouteGroup>,
    pub(super) tcp_routes: Definitions<TcpRoute>,
    pub(super) traffic_splits: Definitions<TrafficSplit>,
    pub(super) identity_bindings: Definitions<IdentityBinding>,
    pub(super) http_routes: Definitions<HttpRoute>,
    pub(super) retries: Definitions<Retry>,
    pub(super) upstream_traffic_settings: Definitions<UpstreamTrafficSetting>,
    pub(super) ingress_backends: Definitions<IngressBackend>,
    pub(super) telemetries: Definitions<Telemetry>,
    pub(super) egresses: Definitions<Egress>,
    /// The accounts that services run as.
    pub(super) accounts: BTreeSet<ServiceAccount>,
    /// What objects refer to, whether or not the rest of them is valid.
    pub(super) references: Vec<Reference>,
    /// Names that something unreadable may define. They are never said to be missing.
    pub(super) may_be_defined: BTreeSet<String>,
}

impl Part {
    /// Forgets what is told about recovered text, and remembers which definitions stand there.
    pub(super) fn damaged(&mut self, damage: &Damage) {
        self.findings
            .retain(|finding| !finding.spot.as_ref().is_some_and(|spot| damage.covers(spot)));
        self.namespaces.damaged(damage);
        self.services.damaged(damage);
        self.traffic_targets.damaged(damage);
        self.http_route_groups.damaged(damage);
        self.tcp_routes.damaged(damage);
        self.traffic_splits.damaged(damage);
        self.identity_bindings.damaged(damage);
        self.http_routes.damaged(damage);
        self.retries.damaged(damage);
        self.upstream_traffic_settings.damaged(damage);
        self.ingress_backends.damaged(damage);
        self.telemetries.damaged(damage);
        self.egresses.damaged(damage);
    }
}

impl Part {
    /// Whether nobody who refers to what this part defines can tell it from `before`: both are read
    /// without a finding, and differ in nothing but where endpoints are, and where things are written.
    pub(super) fn differs_in_endpoints_only(&self, before: &Self) -> bool {
        self.findings.is_empty()
            && before.findings.is_empty()
            && self.namespaces.are_same(&before.namespaces, PartialEq::eq)
            && self.services.are_same(&before.services, Service::differs_in_endpoints_only)
            && self.traffic_targets.are_same(&before.traffic_targets, PartialEq::eq)
            && self.http_route_groups.are_same(&before.http_route_groups, PartialEq::eq)
            && self.tcp_routes.are_same(&before.tcp_routes, PartialEq::eq)
            && self.traffic_splits.are_same(&before.traffic_splits, PartialEq::eq)
            && self.identity_bindings.are_same(&before.identity_bindings, PartialEq::eq)
            && self.http_routes.are_same(&before.http_routes, PartialEq::eq)
            && self.retries.are_same(&before.retries, PartialEq::eq)
            && self
                .upstream_traffic_settings
                .are_same(&before.upstream_traffic_settings, PartialEq::eq)
            && self.ingress_backends.are_same(&before.ingress_backends, PartialEq::eq)
            && self.telemetries.are_same(&before.telemetries, PartialEq::eq)
            && self.egresses.are_same(&before.egresses, PartialEq::eq)
    }

    /// Puts what it defines into `specification`, in place of what has the same names there.
    pub(super) fn put_into(&self, specification: &mut MeshSpecification) {
        for (_, namespace) in self.namespaces.valid() {
            specification.namespaces.insert(namespace.name.clone(), namespace);
        }
        for (_, service) in self.services.valid() {
            specification.services.insert(service.name.clone(), service);
        }
        specification.traffic_targets.extend(self.traffic_targets.valid());
        specification.http_route_groups.extend(self.http_route_groups.valid());
        specification.tcp_routes.extend(self.tcp_routes.valid());
        specification.traffic_splits.extend(self.traffic_splits.valid());
        specification.identity_bindings.extend(self.identity_bindings.valid());
        specification.http_routes.extend(self.http_routes.valid());
        specification.retries.extend(self.retries.valid());
        specification.upstream_traffic_settings.extend(self.upstream_traffic_settings.valid());
        specification.ingress_backends.extend(self.ingress_backends.valid());
        specification.telemetries.extend(self.telemetries.valid());
        specification.egresses.extend(self.egresses.valid());
    }
}

/// The definitions of one kind, in the order of the document. Several may have one name.
#[derive(Debug)]
pub(super) struct Definitions<T>(pub(super) Vec<Definition<T>>);

/// A name that is defined.
#[derive(Debug)]
pub(super) struct Definition<T> {
    pub(super) key: Key,
    pub(super) spot: Spot,
    /// What it names, if that could be read.
    pub(super) object: Result<Arc<T>, Told>,
    /// Whether it was recovered near a syntax error.
    pub(super) is_damaged: bool,
}

impl<T> Definitions<T> {
    /// Takes an object, or only its name where the rest could not be read.
    pub(super) fn push(&mut self, id: &Id, object: Result<T, Told>) {
        self.0.push(Definition {
            key: (id.namespace.clone(), id.name.clone()),
            spot: id.spot.clone(),
            object: object.map(Arc::new),
            is_damaged: false,
        });
    }

    fn valid(&self) -> impl Iterator<Item = (Key, Arc<T>)> {
        let object =
            |one: &Definition<T>| Some((one.key.clone(), Arc::clone(one.object.as_ref().ok()?)));
        self.0.iter().filter_map(object)
    }

    /// Whether all of both can be read, have the same names in the same order, and are the `same`.
    fn are_same(&self, others: &Self, same: impl Fn(&T, &T) -> bool) -> bool {
        let same_definition = |(one, other): (&Definition<T>, &Definition<T>)| {
            let objects = one.object.as_ref().ok().zip(other.object.as_ref().ok());
            one.key == other.key && objects.is_some_and(|(one, other)| same(one, other))
        };
        self.0.len() == others.0.len() && self.0.iter().zip(&others.0).all(same_definition)
    }

    fn damaged(&mut self, damage: &Damage) {
        for definition in &mut self.0 {
            definition.is_damaged = damage.covers(&definition.spot);
        }
    }
}

impl<T> Default for Definitions<T> {
    fn default() -> Self {
        Self(Vec::new())
    }
}

/// Something that must be defined somewhere.
#[derive(Debug)]
pub(super) struct Reference {
    pub(super) wanted: Wanted,
    pub(super) spot: Spot,
}

/// What a reference names.
#[derive(Debug)]
pub(super) enum Wanted {
    /// A service.
    Service(ServiceName),
    /// A service that may be yet to come, and what the same split names besides.
    Backend(ServiceName, Arc<[Name]>),
    /// An account that some service runs as.
    Account(ServiceAccount),
    /// An HTTP route group.
    Group(Key),
    /// A match of an HTTP route group.
    Match(Key, Name),
    /// A TCP route.
    TcpRoute(Key),
    /// An identity binding.
    Binding(Key),
}

/// What an object is called, and where.
#[derive(Debug, Clone)]
pub(super) struct Id {
    pub(super) namespace: Name,
    pub(super) name: Name,
    pub(super) spot: Spot,
}

impl Id {
    /// Reads the keys `name` and `namespace`, which all kinds have.
    pub(super) fn read(table: &mut Table<'_>, part: &mut Part) -> Result<Self, Told> {
        let written = table.get("name").and_then(Value::string_if_any);
        let name = table.required("name", |value| Ok((value.name()?, value.spot())));
        let namespace = table.optional("namespace", Value::name);
        if let (Ok((name, spot)), Ok(namespace)) = (name, namespace) {
            let namespace = namespace.unwrap_or_else(Name::default_namespace);
            Ok(Self { namespace, name, spot })
        } else {
            part.may_be_defined.extend(written.map(str::to_owned));
            Err(Told)
        }
    }
}
