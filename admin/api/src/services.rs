//! The JSON types of the services of policy: their ports, identity, routing, callers and counts of endpoints.

use std::collections::BTreeMap;

use ironmesh_analysis::routing::SplitBranch;
use ironmesh_analysis::verdict::ExternalDestination;
use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::finding::Spot;
use ironmesh_catalog::{Name, ServiceAccount, ServiceName};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::access::CallersView;

/// The most services of one page.
pub const MAX_SERVICE_PAGE: usize = 500;

/// The query of a page of services, which are ordered by name.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct ServiceQuery {
    /// Only services of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub namespace: Option<Name>,
    /// The most services of the page, at most [`MAX_SERVICE_PAGE`], which is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only services after the page that had this as its `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A page of services.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServicePage {
    /// The services, by name.
    pub services: Vec<ServiceView>,
    /// The count of all services that match the query, on all pages.
    pub matching: usize,
    /// What the query of the next page has as `after`; none after the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A service in the list of services.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceView {
    /// Its name.
    pub service: ServiceName,
    /// The account as which its processes run.
    pub account: ServiceAccount,
    /// The hostname by which callers reach it through their sidecars. (A mesh has no virtual addresses.)
    pub hostname: String,
    /// Its mode, or that of its namespace or of the mesh.
    pub mode: String,
    /// Whether other namespaces may call it: `public` or `private`.
    pub visibility: String,
    /// Whether policy drains it.
    pub drained: bool,
    /// The service of which it is a subset.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub subset_of: Option<ServiceName>,
    /// Its hostname and resolution outside the mesh; absent for a service of the mesh.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub external: Option<ExternalDestination>,
    /// Whether a traffic split affects its calls.
    pub split: bool,
    /// Its ports, by number.
    pub ports: Vec<PortView>,
    /// The counts of its endpoints, and of its proxies without one.
    pub endpoints: EndpointCounts,
    /// Where policy defines it.
    pub spot: Spot,
}

/// A port of a service.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortView {
    /// The number that callers use.
    pub number: u16,
    /// Its name.
    pub name: Name,
    /// Its protocol.
    pub protocol: String,
    /// The port of the application, unless an endpoint has one.
    pub target: u16,
    /// The count of addresses that get new calls; absent where proxies resolve a hostname.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ready: Option<usize>,
}

/// The counts of a service's endpoints.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct EndpointCounts {
    /// All endpoints that providers report.
    pub known: usize,
    /// The endpoints, and the proxies without one (`no_endpoint`), by status, as `/v1/endpoints` has it.
    pub by_status: BTreeMap<String, usize>,
}

/// A service in detail.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServiceDetail {
    /// The service.
    #[serde(flatten)]
    pub service: ServiceView,
    /// Its subsets.
    pub subsets: Vec<ServiceName>,
    /// The routing and the callers of each port. Those of a subset have the callers of its service.
    pub access: Vec<ServicePortDetail>,
}

/// The routing and the callers of one port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ServicePortDetail {
    /// The number of the port.
    pub number: u16,
    /// The traffic splits that affect its calls: those of the service, then those of its backends.
    pub splits: Vec<Cited>,
    /// The branches of its calls, in order of evaluation. Without a split, all calls go to the port itself.
    pub branches: Vec<SplitBranch>,
    /// Its callers. With a split, each destination authorizes by its own callers.
    #[serde(flatten)]
    pub callers: CallersView,
}
