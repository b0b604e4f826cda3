//! In what a client may differ from what it has taken last: Envoy takes the good parts of a push that
//! it refuses (rule 5), and of a push whose answer never came nobody knows.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_xds_wire::ResourceMap;

use super::differing;

#[derive(Debug, Clone, Default)]
pub(super) struct UncertainState {
    /// The names that it may have in another version, or not at all.
    pub(super) names: BTreeSet<Arc<str>>,
    /// Those of them that it may have let go.
    pub(super) gone: BTreeSet<Arc<str>>,
}

impl UncertainState {
    /// The client may have taken `push`, or a part of it.
    pub(super) fn add(&mut self, last_acked: &ResourceMap, push: &ResourceMap) {
        let differing = differing(last_acked, push);
        let gone = differing.iter().filter(|name| !push.contains_key(*name)).cloned();
        self.gone.extend(gone);
        self.names.extend(differing);
    }

    /// The same of a client that has another state in force than that from which they were told: each of
    /// these names it may have let go since.
    pub(super) fn of_any_base(self) -> Self {
        Self { gone: self.names.clone(), names: self.names }
    }

    /// Keeps those for which `is_wanted`.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&Arc<str>) -> bool) {
        self.names.retain(&is_wanted);
        self.gone.retain(is_wanted);
    }
}
