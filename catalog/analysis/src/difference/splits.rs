//! Calls that go elsewhere than they went: by other splits of a service, or by others behind them.

use std::collections::BTreeSet;

use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::name::ServicePort;
use ironmesh_catalog::specification::MeshSpecification;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Change;
use crate::routing::{Routing, SplitBranch};

/// A change of the destinations of the calls of a service port.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SplitChange {
    /// The service port.
    pub port: ServicePort,
    /// Whether splits of its calls are added, removed or changed.
    pub change: Change,
    /// The branches before, in order of evaluation. Empty if there was no such port.
    pub before: Vec<SplitBranch>,
    /// The branches after.
    pub after: Vec<SplitBranch>,
    /// The splits that affect it: of the service and of its backends. If there are none, those before.
    pub by: Vec<Cited>,
}

pub(super) fn changes(before: &MeshSpecification, after: &MeshSpecification) -> Vec<SplitChange> {
    let (old, new) = (Routing::of(before), Routing::of(after));
    let ports: BTreeSet<_> = old.ports().chain(new.ports()).cloned().collect();
    let change = |port: ServicePort| {
        let (before, after) = (old.branches(&port), new.branches(&port));
        let is_same = |(one, two): (&SplitBranch, &SplitBranch)| one.is_equivalent(two);
        if before.len() == after.len() && before.iter().zip(&after).all(is_same) {
            return None;
        }
        let (of_old, of_new) = (old.splits_of(&port), new.splits_of(&port));
        let change = match (of_old.is_empty(), of_new.is_empty()) {
            (true, _) => Change::Added,
            (_, true) => Change::Removed,
            _ => Change::Changed,
        };
        let by = if of_new.is_empty() { of_old } else { of_new };
        Some(SplitChange { port, change, before, after, by })
    };
    ports.into_iter().filter_map(change).collect()
}
