//! The revocation of a proxy, by an operator or by the proxy itself.

use ironmesh_catalog::{JoinRecord, Revocation, StoreError};
use ironmesh_xds_server::Hub;

use crate::register::Register;

/// The reason of a proxy that has left for good.
pub(crate) const LEFT: &str = "left the mesh";

/// Revokes the proxy of a join record: first in the store, so that it lasts; then its streams are closed, and admission
/// accepts no new one. The reconciler removes its endpoints from callers. An earlier revocation stays as it is. Returns
/// the revocation that counts.
pub(crate) fn revoke(
    register: &Register,
    hub: &Hub,
    record: &JoinRecord,
    revocation: Revocation,
) -> Result<Revocation, StoreError> {
    let id = record.id;
    register.revoke(id, revocation.clone())?;
    let kept = register.get(id).and_then(|record| record.revoked.clone());
    let revocation = kept.unwrap_or(revocation);
    hub.disconnect(&id.to_string(), &format!("proxy {id} was {revocation}"));
    if record.revoked.is_none() {
        tracing::warn!(proxy = %id, reason = revocation.reason, "proxy revoked");
    }
    Ok(revocation)
}
