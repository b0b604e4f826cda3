//! The revocation of proxies, by an operator or by a proxy itself.

use std::sync::Arc;

use ironmesh_catalog::{JoinRecord, Revocation, StoreError};
use ironmesh_xds_server::Hub;

use crate::register::Register;

/// Revokes the proxies of join records, all or none: first in the store, so that it lasts; then their streams are closed,
/// and admission accepts no new one. The reconciler removes their endpoints from callers. An earlier revocation by an operator stays as
/// it is. Returns the revocations that count, in the order of the records.
pub(crate) fn revoke(
    register: &Register,
    hub: &Hub,
    records: &[Arc<JoinRecord>],
    revocation: &Revocation,
) -> Result<Vec<Revocation>, StoreError> {
    let ids: Vec<_> = records.iter().map(|record| record.id).collect();
    register.revoke(&ids, revocation)?;
    let end = |record: &Arc<JoinRecord>| {
        let id = record.id;
        let kept = register.get(id).and_then(|record| record.revoked.clone());
        let revocation = kept.unwrap_or_else(|| revocation.clone());
        hub.disconnect(&id.to_string(), &format!("proxy {id} was {revocation}"));
        if !record.revoked.as_ref().is_some_and(Revocation::is_by_operator) {
            tracing::warn!(proxy = %id, reason = revocation.reason, "proxy revoked");
        }
        revocation
    };
    Ok(records.iter().map(end).collect())
}
