//! What a plan looks like on the wire: what would change if other documents were the policy.

use ironmesh_analysis::Difference;
use ironmesh_catalog::{ProxyId, Removals, ServiceName};
use serde::{Deserialize, Serialize};

use crate::api::FindingView;

/// The most bytes that the documents of a plan may have, as JSON.
pub const MAX_PLAN: usize = 64 << 20;

/// Asks what would change if these documents were the policy.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlanRequest {
    /// The documents: path below the policy folder, and text.
    pub documents: Vec<(String, String)>,
    /// Whether what differs inside of resources is wanted.
    pub resources: bool,
}

/// What would change.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Plan {
    /// The revision that is compared with: what is in force.
    pub from: String,
    /// The revision that is planned.
    pub to: String,
    /// What differs in the words of policy.
    #[serde(flatten)]
    pub difference: Difference,
    /// The objects that only the policy that is compared with has.
    #[serde(default)]
    pub removals: Removals,
    /// The proxies that would be sent something, those together that would be sent the same.
    pub proxies: Vec<ProxyGroup>,
    /// How many proxies would be sent nothing.
    pub unaffected: usize,
    /// What would be found wrong with the mesh or with what proxies ask for, and is not now.
    pub findings_new: Vec<FindingView>,
    /// What is found wrong, and would not be any more.
    pub findings_gone: Vec<FindingView>,
    /// What is found wrong with several together, and would be with others of them, as it would be told.
    #[serde(default)]
    pub findings_changed: Vec<FindingView>,
}

/// Proxies that would be sent the same.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProxyGroup {
    /// The proxies.
    pub proxies: Vec<PlannedProxy>,
    /// What they would be sent, by type and then by name.
    pub resources: Vec<ResourceChange>,
    /// The listeners' filter chains whose connections would end within Envoy's drain time.
    pub drains: Vec<String>,
}

/// A proxy of a plan.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct PlannedProxy {
    /// Its id; none where the plan is made without a control plane.
    pub id: Option<ProxyId>,
    /// The services that it serves.
    pub services: Vec<ServiceName>,
    /// Whether it is connected. One that is not would be sent the same when it comes.
    pub connected: bool,
}

/// What becomes of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct ResourceChange {
    /// Its type.
    pub resource_type: String,
    /// Its name.
    pub name: String,
    /// `added`, `removed` or `changed`.
    pub change: String,
    /// What differs inside, where that is wanted: private keys are `[redacted]`.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub fields: Vec<FieldChange>,
}

/// What differs inside of a resource.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FieldChange {
    /// Where, as a JSON pointer (RFC 6901).
    pub at: String,
    /// What was there; nothing where it is new.
    pub before: Option<serde_json::Value>,
    /// What will be there; nothing where it goes.
    pub after: Option<serde_json::Value>,
}

impl Plan {
    /// Whether nothing would change: not for anybody, nor in the words of policy.
    pub fn is_empty(&self) -> bool {
        self.difference.is_empty()
            && self.removals.removed.is_empty()
            && self.proxies.is_empty()
            && self.findings_new.is_empty()
            && self.findings_gone.is_empty()
            && self.findings_changed.is_empty()
    }
}
