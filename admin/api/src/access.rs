//! The JSON types of access: which accounts may call which service ports, and by which policy objects.

use ironmesh_analysis::difference::CallerGroup;
use ironmesh_analysis::verdict::GrantingRule;
use ironmesh_catalog::{Name, ServiceAccount, ServicePort};
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

/// The most service ports of one page.
pub const MAX_ACCESS_PAGE: usize = 500;

/// The most callers of all ports of one page. The last port of a page may exceed it by [`MAX_PORT_CALLERS`].
pub const MAX_PAGE_CALLERS: usize = 2_000;

/// The most callers that are listed for one port.
pub const MAX_PORT_CALLERS: usize = 500;

/// The most rules that are listed for one caller.
pub const MAX_CALLER_RULES: usize = 10;

/// The query of a page of service ports with their callers, which are ordered by port.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct AccessQuery {
    /// Only ports of services of this namespace.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[param(inline)]
    pub namespace: Option<Name>,
    /// The most service ports of the page, at most [`MAX_ACCESS_PAGE`], which is also the default.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<usize>,
    /// Only ports after the page that had this as its `next`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub after: Option<String>,
}

/// A page of service ports with their callers. Subsets are not listed: a call of a subset is a call of its service.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct AccessPage {
    /// The service ports, in order.
    pub ports: Vec<PortAccessView>,
    /// The count of all service ports that match the query, on all pages.
    pub matching: usize,
    /// What the query of the next page has as `after`; none after the last page.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub next: Option<String>,
}

/// A service port with its callers.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PortAccessView {
    /// The service port.
    pub port: ServicePort,
    /// The account as which the service runs, which traffic targets name.
    pub account: ServiceAccount,
    /// The protocol of the port.
    pub protocol: String,
    /// The mode of the service.
    pub mode: String,
    /// The callers of the port.
    #[serde(flatten)]
    pub access: CallersView,
}

/// The callers of a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallersView {
    /// The accounts that may call in permissive and audit mode, without a traffic target; none in strict mode.
    pub open_to: Option<CallerGroup>,
    /// The accounts that traffic targets allow some traffic, in order, at most [`MAX_PORT_CALLERS`]. In audit mode, those
    /// that strict mode would allow; none in permissive mode, which ignores targets.
    pub callers: Vec<CallerView>,
    /// The count of callers that `callers` leaves out.
    #[serde(default)]
    pub more_callers: usize,
}

/// An account that may call a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CallerView {
    /// The account.
    pub account: ServiceAccount,
    /// How much of the port's traffic it may send.
    pub extent: AccessExtent,
    /// The rules that allow it, with their traffic targets, at most [`MAX_CALLER_RULES`].
    pub rules: Vec<GrantingRule>,
    /// The count of rules that `rules` leaves out.
    #[serde(default)]
    pub more_rules: usize,
}

/// How much of the traffic of a port an account may send.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum AccessExtent {
    /// Every request or connection.
    All,
    /// The requests that its rules select.
    Some,
}
