//! The JSON types of removals from the policy folder that are held back, and of their acceptance.

use ironmesh_catalog::{PolicyRecord, Removals};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// A change of the policy folder that removes many objects and is not yet active.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct HeldRemoval {
    /// The revision that the folder holds.
    pub revision: String,
    /// When the removal was first seen.
    pub since: Timestamp,
    /// When it becomes active, unless the folder changes again.
    pub until: Timestamp,
    /// How many objects it removes.
    pub removed: usize,
    /// How many objects there were.
    pub of: usize,
}

/// The request to activate a removal that is held back.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
pub struct AcceptRemovalRequest {
    /// The revision that may be activated, or its beginning; none for whichever is held back.
    pub revision: Option<String>,
    /// The user who accepts it.
    pub by: Option<String>,
}

/// A removal that was held back and is now active.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct AcceptedRemoval {
    /// The policy that is active now.
    pub policy: PolicyRecord,
    /// The objects that it removed.
    pub removals: Removals,
}
