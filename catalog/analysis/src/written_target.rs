//! The text of policy that a grant cites.

use std::sync::Arc;

use ironmesh_catalog::grants::Grant;
use ironmesh_catalog::policy::TrafficTarget;
use ironmesh_catalog::snapshot::Snapshot;

/// The target of a grant in the current text: an unchanged grant may come from an older version of the file.
pub(crate) fn written_target<'a>(
    snapshot: &'a Snapshot,
    grant: &'a Grant,
) -> &'a Arc<TrafficTarget> {
    let key = (grant.target.namespace.clone(), grant.target.name.clone());
    snapshot.specification.traffic_targets.get(&key).unwrap_or(&grant.target)
}
