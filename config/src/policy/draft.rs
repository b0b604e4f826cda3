//! The draft: all that the documents say, while it is not yet known to be valid. It remembers names
//! apart from what they name, so that one broken object does not make its callers look broken too.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_catalog::{
    Finding, HttpRouteGroup, MeshSpecification, Name, PolicyRevision, Service, ServiceAccount,
    ServiceName, Spot, TcpRoute, TrafficSplit, TrafficTarget,
};

use crate::codes;
use crate::table::{Table, Told, Value};

/// Namespace and name.
pub(super) type Key = (Name, Name);

/// All that the documents say.
#[derive(Debug, Default)]
pub(super) struct Draft {
    pub(super) findings: Vec<Finding>,
    pub(super) services: Objects<Service>,
    pub(super) traffic_targets: Objects<TrafficTarget>,
    pub(super) http_route_groups: Objects<HttpRouteGroup>,
    pub(super) tcp_routes: Objects<TcpRoute>,
    pub(super) traffic_splits: Objects<TrafficSplit>,
    /// The accounts that services run as, each with a service that does.
    pub(super) accounts: BTreeMap<ServiceAccount, ServiceName>,
    /// What objects refer to, whether or not the rest of them is valid.
    pub(super) references: Vec<Reference>,
    /// Names that something unreadable may define. They are never said to be missing.
    pub(super) may_be_defined: BTreeSet<String>,
    /// Something unreadable may define anything at all.
    pub(super) anything_may_be_defined: bool,
}

impl Draft {
    /// The specification, for a draft without errors.
    pub(super) fn into_specification(self, revision: PolicyRevision) -> MeshSpecification {
        let services = self.services.valid().map(|((namespace, name), service)| {
            (ServiceName::new(namespace, name), Arc::new(service))
        });
        MeshSpecification {
            revision,
            services: services.collect(),
            traffic_targets: self.traffic_targets.into_map(),
            http_route_groups: self.http_route_groups.into_map(),
            tcp_routes: self.tcp_routes.into_map(),
            traffic_splits: self.traffic_splits.into_map(),
        }
    }
}

/// The objects of one kind, by their names.
#[derive(Debug)]
pub(super) struct Objects<T>(BTreeMap<Key, (Spot, Result<T, Told>)>);

impl<T> Objects<T> {
    /// Takes an object, or only its name where the rest could not be read. The second of a name is
    /// told, and what it says is not looked at further.
    pub(super) fn insert(
        &mut self,
        kind: &str,
        id: &Id,
        object: Result<T, Told>,
        table: &Table<'_>,
    ) {
        let key = (id.namespace.clone(), id.name.clone());
        if let Some((first, _)) = self.0.get(&key) {
            let (namespace, name) = key;
            let message = format!("{kind} `{name}` is defined twice in namespace `{namespace}`");
            let finding = Finding::error(codes::DUPLICATE_NAME, Some(id.spot.clone()), message)
                .label("defined again")
                .related(first.clone(), "first defined here");
            table.tell(finding);
            return;
        }
        self.0.insert(key, (id.spot.clone(), object));
    }

    /// The spot of a name that is defined, validly or not.
    pub(super) fn spot(&self, key: &Key) -> Option<&Spot> {
        self.0.get(key).map(|(spot, _)| spot)
    }

    /// The object of that name, if it could be read.
    pub(super) fn get(&self, key: &Key) -> Option<&T> {
        self.0.get(key).and_then(|(_, object)| object.as_ref().ok())
    }

    /// All names that are defined, validly or not.
    pub(super) fn keys(&self) -> impl Iterator<Item = &Key> + Clone {
        self.0.keys()
    }

    /// The objects that could be read, in order.
    pub(super) fn iter(&self) -> impl Iterator<Item = &T> {
        self.0.values().filter_map(|(_, object)| object.as_ref().ok())
    }

    fn valid(self) -> impl Iterator<Item = (Key, T)> {
        self.0.into_iter().filter_map(|(key, (_, object))| Some((key, object.ok()?)))
    }

    fn into_map(self) -> OrdMap<Key, Arc<T>> {
        self.valid().map(|(key, object)| (key, Arc::new(object))).collect()
    }
}

impl<T> Default for Objects<T> {
    fn default() -> Self {
        Self(BTreeMap::new())
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
    pub(super) fn read(table: &mut Table<'_>, draft: &mut Draft) -> Result<Self, Told> {
        let written = table.get("name").and_then(Value::string_if_any);
        let name = table.required("name", |value| Ok((value.name()?, value.spot())));
        let namespace = table.optional("namespace", Value::name);
        if let (Ok((name, spot)), Ok(namespace)) = (name, namespace) {
            let namespace = namespace.unwrap_or_else(Name::default_namespace);
            Ok(Self { namespace, name, spot })
        } else {
            draft.may_be_defined.extend(written.map(str::to_owned));
            Err(Told)
        }
    }
}
