//! A part: what one document says, whatever the others say. It remembers names apart from what they
//! name, so that one broken object does not make its callers look broken too.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_catalog::{
    Finding, HttpRouteGroup, Name, Service, ServiceAccount, ServiceName, Spot, TcpRoute,
    TrafficSplit, TrafficTarget,
};

use super::damage::Damage;
use crate::table::{Table, Told, Value};

/// Namespace and name.
pub(super) type Key = (Name, Name);

/// What one document says.
#[derive(Debug, Default)]
pub(super) struct Part {
    pub(super) findings: Vec<Finding>,
    pub(super) services: Definitions<Service>,
    pub(super) traffic_targets: Definitions<TrafficTarget>,
    pub(super) http_route_groups: Definitions<HttpRouteGroup>,
    pub(super) tcp_routes: Definitions<TcpRoute>,
    pub(super) traffic_splits: Definitions<TrafficSplit>,
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
        self.services.damaged(damage);
        self.traffic_targets.damaged(damage);
        self.http_route_groups.damaged(damage);
        self.tcp_routes.damaged(damage);
        self.traffic_splits.damaged(damage);
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
    /// An account that some service runs as.
    Account(ServiceAccount),
    /// An HTTP route group.
    Group(Key),
    /// A match of an HTTP route group.
    Match(Key, Name),
    /// A TCP route.
    TcpRoute(Key),
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
