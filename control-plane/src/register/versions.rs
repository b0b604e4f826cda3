//! The versions of proxies' programs in the register, which outlive their connections.

use std::sync::Arc;

use ironmesh_catalog::{JoinRecord, ProxyId, ProxyVersions, StoreError};

use super::Register;

impl Register {
    /// Records the version of the agent of a proxy's machine.
    pub(crate) fn record_agent_version(
        &self,
        id: ProxyId,
        version: &str,
    ) -> Result<(), StoreError> {
        let agent = Some(version.to_owned());
        self.change_versions(id, |versions| ProxyVersions { agent: agent.clone(), ..versions })
    }

    /// Records the version of an Envoy that is not admitted: it has no progress by which it would be recorded.
    pub(crate) fn record_envoy_version(
        &self,
        id: ProxyId,
        version: &str,
    ) -> Result<(), StoreError> {
        let envoy = Some(version.to_owned());
        self.change_versions(id, |versions| ProxyVersions { envoy: envoy.clone(), ..versions })
    }

    /// Nearly every call repeats what is recorded, and waits for nothing.
    fn change_versions(
        &self,
        id: ProxyId,
        new: impl Fn(ProxyVersions) -> ProxyVersions,
    ) -> Result<(), StoreError> {
        let changed = |record: &Arc<JoinRecord>| {
            let versions = new(record.versions.clone());
            let is_changed = record.revoked.is_none() && versions != record.versions;
            is_changed.then(|| JoinRecord { versions, ..(**record).clone() })
        };
        if self.get(id).is_none_or(|record| changed(&record).is_none()) {
            return Ok(());
        }
        self.change(|records| records.get(&id).and_then(changed).into_iter().collect())
    }
}
