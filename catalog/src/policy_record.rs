//! The history of policies: revision, time, author and reason of each.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::specification::PolicyRevision;

/// One policy that was activated, or pushed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyRecord {
    /// The revision of the documents.
    pub revision: PolicyRevision,
    /// When it was activated or pushed.
    pub at: Timestamp,
    /// The commit of its git checkout, with `+dirty` if the documents differ from that commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// The user who pushed it or rolled back to it. A claim, since the user's machine sets it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// The reason that the user gave.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A policy that a rollback pins, in place of the policy folder.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyPin {
    /// The policy, with time, user and reason of the rollback.
    #[serde(flatten)]
    pub record: PolicyRecord,
    /// The revision of the policy folder at the rollback; none if it is unknown.
    pub folder: Option<PolicyRevision>,
}
