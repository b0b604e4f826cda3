//! The kind and the name of an object of policy, without the object.

use std::borrow::Cow;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The kind and the name of an object of policy.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct PolicyObject {
    /// The kind in policy files, such as `traffic_target`.
    pub kind: Cow<'static, str>,
    /// `NAMESPACE/NAME`; for a namespace its name.
    pub name: String,
}
