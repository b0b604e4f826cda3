//! The JSON types of enrollment.

use std::net::IpAddr;

use ironmesh_catalog::network_address;
use ironmesh_catalog::{DriverName, Labels, Locality, ProxyId, ProxyName, ServiceName, Upstream};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

/// The most proxies that one request may enroll: their records and those of their names are one transaction of the store.
pub const MAX_ENROLLMENTS: usize = 50;

/// The most addresses by which providers may know one machine.
pub const MAX_KNOWN_AS: usize = 16;

/// The request to enroll proxies: all of them, or none.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BootstrapRequest {
    /// The services that each proxy serves, at least one.
    pub services: Vec<ServiceName>,
    /// The labels of each proxy.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The locality of each proxy.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
    /// Further addresses by which providers know the machine, besides the one to which callers connect: at most
    /// [`MAX_KNOWN_AS`], and none for several proxies.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<network_address::IpAddress>)]
    pub known_as: Vec<IpAddr>,
    /// The key by which providers know the machine, if they have one (in Azure, the `vmId`); none for several proxies.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// The services that their applications call by local ports, to be checked.
    pub upstreams: Vec<Upstream>,
    /// The name of the proxy; none for several proxies, and for a default name.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ProxyName>,
    /// The sidecar driver of each proxy; without it, that of the control plane's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverName>,
    /// Whether the authority is known to be new. Otherwise no proxy is enrolled while all clients reject it.
    #[serde(default)]
    pub new_authority: bool,
    /// The proxies to enroll, at least one and at most [`MAX_ENROLLMENTS`].
    #[schema(min_items = 1, max_items = 50)]
    pub proxies: Vec<EnrollmentRequest>,
}

/// One proxy to enroll.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EnrollmentRequest {
    /// The address to which callers connect.
    #[schema(value_type = network_address::IpAddress)]
    pub address: IpAddr,
    /// The certificate signing request, in PEM. The private key stays with the client.
    pub certificate_request: String,
}

/// A newly enrolled proxy.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct EnrolledProxy {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// The certificate and its issuers, in PEM.
    pub certificate: String,
    /// When the certificate expires.
    pub expires_at: Timestamp,
}

/// The result of an enrollment: everything that the proxies need to connect.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct BootstrapResponse {
    /// The proxies, in the order of the request.
    pub proxies: Vec<EnrolledProxy>,
    /// The root certificates of the mesh, in PEM.
    pub roots: String,
    /// The addresses of the control plane, as host and port.
    pub control_plane: Vec<(String, u16)>,
    /// The SPIFFE ID of the control plane.
    pub control_plane_id: String,
    /// The sidecar driver of the proxies.
    #[serde(default)]
    pub driver: DriverName,
    /// When the certificates were issued. Their own validity begins earlier.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub issued_at: Option<Timestamp>,
    /// Where the machines renew their certificates, as host and port.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub enrollment: Vec<(String, u16)>,
    /// Notes for the user.
    pub notes: Vec<String>,
}
