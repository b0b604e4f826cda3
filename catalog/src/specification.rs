//! The mesh specification: all that the operators' documents say.

use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;
use serde::{Deserialize, Serialize};

use crate::name::{Name, ServiceName};
use crate::policy::telemetry::Telemetry;
use crate::policy::{
    Egress, EgressMode, HttpMatch, HttpRoute, HttpRouteGroup, IdentityBinding, IngressBackend,
    Namespace, Retry, SplitMatch, TcpRoute, TrafficSplit, TrafficTarget, UpstreamTrafficSetting,
};
use crate::service::{Mode, Service};

/// Everything that policy says, with all references resolved and all names unique.
///
/// Invariant: it passed validation. What a reference names is there, but for backends of splits, which
/// may be yet to come (SMI).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeshSpecification {
    /// Which state of the documents this is.
    pub revision: PolicyRevision,
    /// The namespaces of which policy says something.
    pub namespaces: OrdMap<Name, Arc<Namespace>>,
    /// The services.
    pub services: OrdMap<ServiceName, Arc<Service>>,
    /// Who may call whom, by namespace and name.
    pub traffic_targets: OrdMap<(Name, Name), Arc<TrafficTarget>>,
    /// Ways to call, by namespace and name.
    pub http_route_groups: OrdMap<(Name, Name), Arc<HttpRouteGroup>>,
    /// Ways to connect, by namespace and name.
    pub tcp_routes: OrdMap<(Name, Name), Arc<TcpRoute>>,
    /// Names for identities, by namespace and name.
    pub identity_bindings: OrdMap<(Name, Name), Arc<IdentityBinding>>,
    /// Splits, by namespace and name. Of each service one at most is about all calls.
    pub traffic_splits: OrdMap<(Name, Name), Arc<TrafficSplit>>,
    /// How calls are treated, by namespace and name.
    pub http_routes: OrdMap<(Name, Name), Arc<HttpRoute>>,
    /// What is tried again, by namespace and name.
    pub retries: OrdMap<(Name, Name), Arc<Retry>>,
    /// How services are spared, by namespace and name. Of each level one at most says a setting.
    pub upstream_traffic_settings: OrdMap<(Name, Name), Arc<UpstreamTrafficSetting>>,
    /// Who may call from outside of the mesh, by namespace and name.
    pub ingress_backends: OrdMap<(Name, Name), Arc<IngressBackend>>,
    /// What sidecars tell of calls, by namespace and name. Of each service and setting one at most is of the
    /// same distance.
    pub telemetries: OrdMap<(Name, Name), Arc<Telemetry>>,
    /// Who may call what outside of the mesh, by namespace and name.
    pub egresses: OrdMap<(Name, Name), Arc<Egress>>,
}

impl MeshSpecification {
    /// What becomes of calls of `service` that no policy allows: what it says itself, else its namespace,
    /// else the mesh.
    pub fn mode_of(&self, service: &Service, mesh: Mode) -> Mode {
        let of_namespace = || self.namespaces.get(&service.name.namespace)?.mode;
        service.mode.or_else(of_namespace).unwrap_or(mesh)
    }

    /// What becomes of calls of accounts of `namespace` to the outside that no policy allows: what it says
    /// itself, else the mesh.
    pub fn egress_of(&self, namespace: &Name, mesh: EgressMode) -> EgressMode {
        self.namespaces.get(namespace).and_then(|known| known.egress).unwrap_or(mesh)
    }

    /// The matches that are named in a namespace, each with its group.
    pub fn matched<'a>(
        &'a self,
        namespace: &'a Name,
        named: &'a [SplitMatch],
    ) -> impl Iterator<Item = (&'a HttpRouteGroup, &'a HttpMatch)> {
        named.iter().flat_map(|named| {
            let group = self.http_route_groups.get(&(namespace.clone(), named.group.clone()));
            let all = group
                .into_iter()
                .flat_map(|group| group.matches.iter().map(move |one| (&**group, one)));
            all.filter(|(_, one)| {
                named.matches.as_ref().is_none_or(|names| names.contains(&one.name))
            })
        })
    }

    /// Whether both say the same of everything but where endpoints are. It costs as much as differs
    /// between two of which one was made out of the other.
    pub fn differs_in_endpoints_only(&self, other: &Self) -> bool {
        let same_but_endpoints = |item: DiffItem<'_, '_, ServiceName, Arc<Service>>| match item {
            DiffItem::Update { old: (_, ours), new: (_, theirs) } => {
                ours.differs_in_endpoints_only(theirs)
            }
            DiffItem::Add(..) | DiffItem::Remove(..) => false,
        };
        self.services.diff(&other.services).all(same_but_endpoints)
            && self.namespaces == other.namespaces
            && self.traffic_targets == other.traffic_targets
            && self.http_route_groups == other.http_route_groups
            && self.tcp_routes == other.tcp_routes
            && self.identity_bindings == other.identity_bindings
            && self.traffic_splits == other.traffic_splits
            && self.http_routes == other.http_routes
            && self.retries == other.retries
            && self.upstream_traffic_settings == other.upstream_traffic_settings
            && self.ingress_backends == other.ingress_backends
            && self.telemetries == other.telemetries
            && self.egresses == other.egresses
    }
}

impl Egress {
    /// The matches that it names, each with its group. It is about all requests where it names none.
    pub fn requests<'a>(
        &'a self,
        specification: &'a MeshSpecification,
    ) -> impl Iterator<Item = (&'a HttpRouteGroup, &'a HttpMatch)> {
        specification.matched(&self.namespace, &self.matches)
    }
}

impl IngressBackend {
    /// The matches that it names, each with its group. It is about all requests where it names none.
    pub fn requests<'a>(
        &'a self,
        specification: &'a MeshSpecification,
    ) -> impl Iterator<Item = (&'a HttpRouteGroup, &'a HttpMatch)> {
        specification.matched(&self.namespace, &self.matches)
    }
}

/// Names one state of the documents: a short hash of their content.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyRevision(pub Arc<str>);

impl Default for PolicyRevision {
    /// The revision of no documents at all.
    fn default() -> Self {
        Self("empty".into())
    }
}

impl fmt::Display for PolicyRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
