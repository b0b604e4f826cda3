//! Calls that go elsewhere than they went: by other splits of a service, or by others behind them.

use std::collections::BTreeSet;

use ironmesh_catalog::cited::Cited;
use ironmesh_catalog::name::ServicePort;
use ironmesh_catalog::specification::MeshSpecification;
use serde::{Deserialize, Serialize};

use super::Change;
use crate::routing::{Branch, Routing};

/// The calls of a service port come to be split, or to be split otherwise.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitChange {
    /// The service port.
    pub port: ServicePort,
    /// Whether splits act on it for the first time, not any more, or otherwise.
    pub change: Change,
    /// Where its calls went, in the order in which this is tried. Nothing where there was no such port.
    pub before: Vec<Branch>,
    /// Where they go.
    pub after: Vec<Branch>,
    /// The splits that act on it: of the service, and behind it. If none does any more, those that did.
    pub by: Vec<Cited>,
}

pub(super) fn changes(before: &MeshSpecification, after: &MeshSpecification) -> Vec<SplitChange> {
    let (old, new) = (Routing::of(before), Routing::of(after));
    let ports: BTreeSet<_> = old.ports().chain(new.ports()).cloned().collect();
    let change = |port: ServicePort| {
        let (before, after) = (old.branches(&port), new.branches(&port));
        let is_same = |(one, two): (&Branch, &Branch)| one.says_the_same(two);
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
