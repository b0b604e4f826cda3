//! Splits that come, go or weigh otherwise.

use imbl::ordmap::DiffItem;
use serde::{Deserialize, Serialize};

use super::Change;
use crate::finding::Spot;
use crate::name::ServiceName;
use crate::policy::TrafficSplit;
use crate::specification::MeshSpecification;

/// A traffic split comes, goes or changes.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SplitChange {
    /// Namespace and name of the split.
    pub split: String,
    /// The service whose calls it splits.
    pub service: ServiceName,
    /// What becomes of it.
    pub change: Change,
    /// The shares before, in words; of no split, none.
    pub before: Option<String>,
    /// The shares after.
    pub after: Option<String>,
    /// Where it is written; where it was, if it goes.
    pub spot: Spot,
}

pub(super) fn changes(before: &MeshSpecification, after: &MeshSpecification) -> Vec<SplitChange> {
    let differences = before.traffic_splits.diff(&after.traffic_splits);
    let changes = differences.map(|item| {
        let (change, old, new) = match item {
            DiffItem::Add(_, new) => (Change::Added, None, Some(new)),
            DiffItem::Remove(_, old) => (Change::Removed, Some(old), None),
            DiffItem::Update { old: (_, old), new: (_, new) } => {
                (Change::Changed, Some(old), Some(new))
            }
        };
        let split = new.or(old)?;
        Some(SplitChange {
            split: format!("{}/{}", split.namespace, split.name),
            service: split.service.clone(),
            change,
            before: old.map(|split| shares(split)),
            after: new.map(|split| shares(split)),
            spot: split.spot.clone(),
        })
    });
    changes.flatten().collect()
}

/// The share of each backend, in percent as far as that is whole.
fn shares(split: &TrafficSplit) -> String {
    let sum: u64 = split.backends.iter().map(|one| u64::from(one.weight)).sum();
    let shares = split.backends.iter().map(|one| {
        let hundreds = u64::from(one.weight) * 100;
        let share = match hundreds.checked_rem(sum) {
            Some(0) => format!("{} %", hundreds / sum),
            _ => format!("{}/{sum}", one.weight),
        };
        format!("{share} {}", one.service)
    });
    shares.collect::<Vec<_>>().join(", ")
}
