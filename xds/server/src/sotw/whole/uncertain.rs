//! The uncertain part of a client's state: Envoy applies the good parts of a push that it NACKs
//! (rule 5), and the result of an unanswered push is unknown.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_xds_wire::ResourceMap;

use super::differing;

#[derive(Debug, Clone, Default)]
pub(super) struct UncertainState {
    /// The names that the client may have in another version, or not at all.
    pub(super) names: BTreeSet<Arc<str>>,
    /// Those of them that the client may have removed.
    pub(super) gone: BTreeSet<Arc<str>>,
}

impl UncertainState {
    /// Adds what differs in `push`, of which the client may have applied a part.
    pub(super) fn add(&mut self, last_acked: &ResourceMap, push: &ResourceMap) {
        let differing = differing(last_acked, push);
        let gone = differing.iter().filter(|name| !push.contains_key(name)).cloned();
        self.gone.extend(gone);
        self.names.extend(differing);
    }

    /// The same relative to any other state: the client may have removed each of these names since.
    pub(super) fn relative_to_any_base(self) -> Self {
        Self { gone: self.names.clone(), names: self.names }
    }

    /// Keeps the names for which `is_wanted`.
    pub(super) fn retain(&mut self, is_wanted: impl Fn(&Arc<str>) -> bool) {
        self.names.retain(&is_wanted);
        self.gone.retain(is_wanted);
    }
}
