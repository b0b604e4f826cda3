//! The JSON types of releases: policy documents that an operator makes the active policy.

use ironmesh_catalog::{PolicyRecord, Removals};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::readiness::FindingView;

/// The most bytes of a request to apply policy, as JSON. (A policy has at most 32 MiB.)
pub const MAX_APPLY: usize = 64 << 20;

/// The request to make a release of policy documents, and to activate it.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ApplyRequest {
    /// The documents: path below the policy folder, and text.
    pub documents: Vec<(String, String)>,
    /// The git commit of the documents, if they have one.
    pub commit: Option<String>,
    /// The user who applies them.
    pub by: Option<String>,
    /// The reason.
    pub message: Option<String>,
}

/// The result of applying policy documents.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Applied {
    /// The revision, and since when, by whom and why it is active.
    pub policy: PolicyRecord,
    /// Whether it was active before; then nothing has changed.
    pub is_old: bool,
    /// The warnings about it.
    pub findings: Vec<FindingView>,
    /// The objects that it lacks of the policy that was active before.
    pub removals: Removals,
}

/// The error of a request above [`MAX_APPLY`].
pub fn apply_too_large() -> String {
    format!(
        "the documents have more than {} MiB as JSON: are there files in the policy folder that are no policy?",
        MAX_APPLY >> 20
    )
}
