//! The mesh specification: the content of the operators' documents, validated.

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

/// The whole policy, with all references resolved and all names unique.
///
/// Invariant: it passed validation. Every reference exists, except backends of splits, which may be added later
/// (SMI).
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct MeshSpecification {
    /// The revision of the documents.
    pub revision: PolicyRevision,
    /// The namespaces with settings.
    pub namespaces: OrdMap<Name, Arc<Namespace>>,
    /// The services.
    pub services: OrdMap<ServiceName, Arc<Service>>,
    /// The traffic targets, by namespace and name.
    pub traffic_targets: OrdMap<(Name, Name), Arc<TrafficTarget>>,
    /// The HTTP route groups, by namespace and name.
    pub http_route_groups: OrdMap<(Name, Name), Arc<HttpRouteGroup>>,
    /// The TCP routes, by namespace and name.
    pub tcp_routes: OrdMap<(Name, Name), Arc<TcpRoute>>,
    /// The identity bindings, by namespace and name.
    pub identity_bindings: OrdMap<(Name, Name), Arc<IdentityBinding>>,
    /// The traffic splits, by namespace and name. Each service has at most one unconditional split.
    pub traffic_splits: OrdMap<(Name, Name), Arc<TrafficSplit>>,
    /// The HTTP routes, by namespace and name.
    pub http_routes: OrdMap<(Name, Name), Arc<HttpRoute>>,
    /// The retries, by namespace and name.
    pub retries: OrdMap<(Name, Name), Arc<Retry>>,
    /// The upstream traffic settings, by namespace and name. Each level has at most one object per setting.
    pub upstream_traffic_settings: OrdMap<(Name, Name), Arc<UpstreamTrafficSetting>>,
    /// The ingress backends, by namespace and name.
    pub ingress_backends: OrdMap<(Name, Name), Arc<IngressBackend>>,
    /// The telemetry objects, by namespace and name. Each level has at most one object per setting.
    pub telemetries: OrdMap<(Name, Name), Arc<Telemetry>>,
    /// The egress objects, by namespace and name.
    pub egresses: OrdMap<(Name, Name), Arc<Egress>>,
}

impl MeshSpecification {
    /// The mode of `service`: its own, else that of its namespace, else that of the mesh.
    pub fn mode_of(&self, service: &Service, mesh: Mode) -> Mode {
        let of_namespace = || self.namespaces.get(&service.name.namespace)?.mode;
        service.mode.or_else(of_namespace).unwrap_or(mesh)
    }

    /// The egress mode of accounts of `namespace`: that of the namespace, else that of the mesh.
    pub fn egress_of(&self, namespace: &Name, mesh: EgressMode) -> EgressMode {
        self.namespaces.get(namespace).and_then(|known| known.egress).unwrap_or(mesh)
    }

    /// The matches that an object of a namespace names, each with its group.
    pub fn matched<'a>(
        &'a self,
        namespace: &'a Name,
        named: &'a [SplitMatch],
    ) -> impl Iterator<Item = (&'a HttpRouteGroup, &'a HttpMatch)> {
        named.iter().flat_map(|named| {
            let group = self.http_route_groups.get(&(namespace.clone(), named.group.clone()));
            let names = named.matches.as_deref();
            group
                .into_iter()
                .flat_map(move |group| group.named_matches(names).map(move |one| (&**group, one)))
        })
    }

    /// Whether both differ at most in the sources of endpoints and in upstreams, which grant nothing. If one is derived
    /// from the other, the cost is linear in their differences.
    pub fn has_same_access(&self, other: &Self) -> bool {
        let same_but_endpoints = |item: DiffItem<'_, '_, ServiceName, Arc<Service>>| match item {
            DiffItem::Update { old: (_, ours), new: (_, theirs) } => {
                ours.is_same_to_callers(theirs)
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
    /// The matches that it names, each with its group. Without any it applies to every request.
    pub fn requests<'a>(
        &'a self,
        specification: &'a MeshSpecification,
    ) -> impl Iterator<Item = (&'a HttpRouteGroup, &'a HttpMatch)> {
        specification.matched(&self.namespace, &self.matches)
    }
}

impl IngressBackend {
    /// The matches that it names, each with its group. Without any it applies to every request.
    pub fn requests<'a>(
        &'a self,
        specification: &'a MeshSpecification,
    ) -> impl Iterator<Item = (&'a HttpRouteGroup, &'a HttpMatch)> {
        specification.matched(&self.namespace, &self.matches)
    }
}

/// The revision of a policy: a short hash of the content of its documents.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(transparent)]
pub struct PolicyRevision(pub Arc<str>);

impl Default for PolicyRevision {
    /// The revision of an empty policy.
    fn default() -> Self {
        Self("empty".into())
    }
}

impl fmt::Display for PolicyRevision {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}
