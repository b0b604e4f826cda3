//! Differences between two snapshots in terms of policy: services, access, splits, routes, telemetry, egress.
//!
//! This module owns the difference as data. It never computes which resources of proxies change; the compiler
//! does.

mod access;
mod egress;
mod services;
mod splits;
mod telemetries;
#[cfg(test)]
mod tests;
mod treatments;
mod widening;

use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

pub use access::{AccessChange, AccessDelta, CallerGroup};
pub use egress::EgressChange;
pub use services::ServiceChange;
pub use splits::SplitChange;
pub use telemetries::TelemetryChange;
pub use treatments::TreatmentChange;

/// The differences between two snapshots, in order of names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Difference {
    /// Added, removed and changed services.
    pub services: Vec<ServiceChange>,
    /// Gained and lost access to service ports.
    pub access: Vec<AccessChange>,
    /// Service ports whose calls go to different backends or weights.
    pub splits: Vec<SplitChange>,
    /// Added, removed and changed objects that affect requests on their path: HTTP routes, retries, ingress backends.
    pub treatments: Vec<TreatmentChange>,
    /// Added, removed and changed telemetry.
    pub telemetries: Vec<TelemetryChange>,
    /// Gained and lost access to destinations outside the mesh.
    #[serde(default)]
    pub egress: Vec<EgressChange>,
}

/// Whether an object is added, removed or changed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is added.
    Added,
    /// It is removed.
    Removed,
    /// It is different.
    Changed,
}

impl Change {
    /// The sign in front of it in a list.
    pub fn sign(self) -> char {
        match self {
            Self::Added => '+',
            Self::Removed => '-',
            Self::Changed => '~',
        }
    }
}

impl Difference {
    /// The differences of `after` from `before`.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        Self {
            services: services::changes(before, after),
            access: access::changes(before, after),
            splits: splits::changes(&before.specification, &after.specification),
            treatments: treatments::changes(&before.specification, &after.specification),
            telemetries: telemetries::changes(&before.specification, &after.specification),
            egress: egress::changes(before, after),
        }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        let Self { services, access, splits, treatments, egress, telemetries } = self;
        services.is_empty()
            && access.is_empty()
            && splits.is_empty()
            && treatments.is_empty()
            && egress.is_empty()
            && telemetries.is_empty()
    }
}
