//! The condition of a store in etcd, for status and metrics.

use std::collections::BTreeSet;

use jiff::Timestamp;

/// The faults of a store in use; all are empty if it is healthy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct StoreCondition {
    /// Since when and why etcd cannot be used. Reads continue from the last verified state; commits fail at once.
    pub unavailable: Option<(Timestamp, String)>,
    /// Since when and why etcd stores nothing, although it answers.
    pub not_writable: Option<(Timestamp, String)>,
    /// The keys of etcd that a client other than the control planes of the mesh has written. They have no effect.
    pub foreign: BTreeSet<String>,
    /// Why what etcd has now is not a state that control planes of the mesh made. Reads continue from the last verified
    /// state; nothing is stored.
    pub damage: Option<String>,
    /// The revision to which etcd went back, below that of the last verified state.
    pub rolled_back_to: Option<u64>,
    /// Why the copy on this machine's disk cannot be written.
    pub copy_failure: Option<String>,
}

impl StoreCondition {
    /// Why nothing can be stored now; none if commits are possible.
    pub fn blocked(&self) -> Option<String> {
        let unavailable = self.unavailable.as_ref().or(self.not_writable.as_ref());
        let unavailable = unavailable.map(|(_, problem)| problem.clone());
        let older = self.rolled_back_to.map(|found| {
            format!("etcd went back to revision {found}, older than what this control plane has")
        });
        unavailable.or_else(|| self.damage.clone()).or(older)
    }
}
