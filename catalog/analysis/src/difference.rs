//! What differs between two moments of a mesh, in the words of policy: services, who may call whom, how
//! calls are split and how they are treated on their way. It is data; how proxies are told of it is for the compiler to say.

mod access;
mod exits;
mod services;
mod splits;
mod telemetries;
#[cfg(test)]
mod tests;
mod treatments;
mod widening;

use ironmesh_catalog::snapshot::Snapshot;
use serde::{Deserialize, Serialize};

pub use access::{AccessChange, Turn, Who};
pub use exits::ExitChange;
pub use services::ServiceChange;
pub use splits::SplitChange;
pub use telemetries::TelemetryChange;
pub use treatments::TreatmentChange;

/// What differs between two moments of a mesh, in order of names.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Difference {
    /// Services that come, go or are other than they were.
    pub services: Vec<ServiceChange>,
    /// Who may call what, and might not before, or the other way round.
    pub access: Vec<AccessChange>,
    /// Service ports whose calls are split otherwise.
    pub splits: Vec<SplitChange>,
    /// Objects that come, go or say otherwise how calls are treated on their way.
    pub treatments: Vec<TreatmentChange>,
    /// Telemetry that comes, goes or is another.
    pub telemetries: Vec<TelemetryChange>,
    /// Who may call what outside of the mesh, and might not before, or the other way round.
    #[serde(default)]
    pub exits: Vec<ExitChange>,
}

/// How something changes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Change {
    /// It is new.
    Added,
    /// It is no more.
    Removed,
    /// It is something else.
    Changed,
}

impl Change {
    /// The sign that stands before it in a list.
    pub fn sign(self) -> char {
        match self {
            Self::Added => '+',
            Self::Removed => '-',
            Self::Changed => '~',
        }
    }
}

impl Difference {
    /// What differs in `after`.
    pub fn between(before: &Snapshot, after: &Snapshot) -> Self {
        Self {
            services: services::changes(before, after),
            access: access::changes(before, after),
            splits: splits::changes(&before.specification, &after.specification),
            treatments: treatments::changes(&before.specification, &after.specification),
            telemetries: telemetries::changes(&before.specification, &after.specification),
            exits: exits::changes(before, after),
        }
    }

    /// Whether nothing differs.
    pub fn is_empty(&self) -> bool {
        let Self { services, access, splits, treatments, exits, telemetries } = self;
        services.is_empty()
            && access.is_empty()
            && splits.is_empty()
            && treatments.is_empty()
            && exits.is_empty()
            && telemetries.is_empty()
    }
}
