//! Roles: what a resource is in the mesh, known when it is compiled, and never read from its name.

use ironmesh_catalog::ServicePort;
use ironmesh_xds_wire::Resource;

/// The role of a resource about one service port.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ResourceRole {
    /// The cluster of the port for its callers, or its endpoints.
    Called(ServicePort),
    /// The cluster of the applications behind a proxy.
    Local(ServicePort),
    /// The cluster through which connections of the port go to be counted.
    Counted(ServicePort),
    /// The cluster through which connections go to the chain of their caller.
    ByCaller(ServicePort),
    /// It decides who may call the port: an inbound route configuration, or the list of callers of
    /// a TCP port.
    Authorization(ServicePort),
}

impl ResourceRole {
    /// The role of a compiled resource; `None` if it has none of these.
    pub fn of(resource: &Resource) -> Option<&Self> {
        resource.role()
    }

    /// Whether a cluster leads to a proxy's own applications, which differ for each proxy.
    pub fn is_own_cluster(resource: &Resource) -> bool {
        match Self::of(resource) {
            Some(Self::Local(_) | Self::Counted(_) | Self::ByCaller(_)) => true,
            Some(Self::Called(_) | Self::Authorization(_)) | None => false,
        }
    }

    /// The service port whose applications a cluster leads to, if that is its role.
    pub fn local_port(resource: &Resource) -> Option<&ServicePort> {
        match Self::of(resource)? {
            Self::Local(port) => Some(port),
            _ => None,
        }
    }

    /// The service port whose callers use a cluster or endpoints, if that is the role.
    pub fn called_port(resource: &Resource) -> Option<&ServicePort> {
        match Self::of(resource)? {
            Self::Called(port) => Some(port),
            _ => None,
        }
    }

    /// The service port about whose callers a resource decides, if it does: then its earlier version
    /// must not stay active in its place.
    ///
    /// Runtime keys and the filters that read them do not: they end connections of callers that the
    /// list no longer allows.
    pub fn authorized_port(resource: &Resource) -> Option<&ServicePort> {
        match Self::of(resource)? {
            Self::Authorization(port) => Some(port),
            _ => None,
        }
    }
}
