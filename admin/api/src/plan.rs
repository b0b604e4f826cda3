//! The JSON types of plans.

use ironmesh_analysis::Difference;
use ironmesh_catalog::{ProxyId, ProxyName, Removals, ServiceName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::readiness::FindingView;

/// The most bytes of a plan request, as JSON.
pub const MAX_PLAN: usize = 64 << 20;

/// The request to predict what these policy documents would change.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlanRequest {
    /// The documents: path below the policy folder, and text.
    pub documents: Vec<(String, String)>,
    /// Whether the plan includes the changed fields of resources.
    pub resources: bool,
}

/// The predicted effect of policy documents.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Plan {
    /// The active revision, with which the plan compares.
    pub from: String,
    /// The planned revision.
    pub to: String,
    /// The differences in access, splits and other objects.
    #[serde(flatten)]
    pub difference: Difference,
    /// The objects that the planned policy lacks.
    #[serde(default)]
    pub removals: Removals,
    /// The proxies that would be updated, grouped by equal updates.
    pub proxies: Vec<ProxyGroup>,
    /// How many proxies would not be updated.
    pub unaffected: usize,
    /// The findings about the mesh or about what proxies request that would appear.
    pub findings_new: Vec<FindingView>,
    /// The findings that would disappear.
    pub findings_gone: Vec<FindingView>,
    /// The findings that would list other names, as they would be reported.
    #[serde(default)]
    pub findings_changed: Vec<FindingView>,
}

/// Proxies that would get equal updates.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ProxyGroup {
    /// The proxies.
    pub proxies: Vec<PlannedProxy>,
    /// The resources that would change, by type and then by name.
    pub resources: Vec<ResourceChange>,
    /// The listeners' filter chains whose connections would end within Envoy's drain time.
    pub drains: Vec<String>,
}

/// A proxy in a plan.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct PlannedProxy {
    /// Its id; none if the plan is made without a control plane.
    pub id: Option<ProxyId>,
    /// Its name; none if the plan is made without a control plane.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ProxyName>,
    /// The services that it serves.
    pub services: Vec<ServiceName>,
    /// Whether it is connected. A disconnected proxy would get the update when it reconnects.
    pub connected: bool,
}

/// The change of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ResourceChange {
    /// The type of the resource.
    pub resource_type: String,
    /// The name of the resource.
    pub name: String,
    /// `added`, `removed` or `changed`.
    pub change: String,
    /// The changed fields, if they were requested. Private keys are `[redacted]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// The change of a field of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct FieldChange {
    /// The location, as a JSON pointer (RFC 6901).
    pub at: String,
    /// The value before; none if the field is new.
    pub before: Option<serde_json::Value>,
    /// The value after; none if the field is removed.
    pub after: Option<serde_json::Value>,
}

impl Plan {
    /// Whether nothing would change, neither for a proxy nor in policy.
    pub fn is_empty(&self) -> bool {
        self.difference.is_empty()
            && self.removals.removed.is_empty()
            && self.proxies.is_empty()
            && self.findings_new.is_empty()
            && self.findings_gone.is_empty()
            && self.findings_changed.is_empty()
    }
}
