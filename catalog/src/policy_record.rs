//! What is remembered of a policy besides its documents: which it is, since when, from whom, and why.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use crate::specification::PolicyRevision;

/// One policy that was put into force, or pushed for it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyRecord {
    /// Which state of the documents.
    pub revision: PolicyRevision,
    /// When it was put into force, or pushed.
    pub at: Timestamp,
    /// The commit of the git checkout that it was read from, `+dirty` behind it where the documents differ
    /// from that commit.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub commit: Option<String>,
    /// Who pushed it or rolled back to it: a claim, since it is the machine of that person that says so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub by: Option<String>,
    /// Why, in that person's words.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub message: Option<String>,
}

/// A policy that is in force in place of what the policy folder holds, since somebody rolled back to it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct PolicyPin {
    /// The policy; since when, by whom and why it was rolled back to.
    #[serde(flatten)]
    pub record: PolicyRecord,
    /// What the policy folder held when it was; none where that is not known.
    pub folder: Option<PolicyRevision>,
}
