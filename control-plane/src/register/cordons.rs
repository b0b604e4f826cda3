//! Cordons in the register: an operator's order is a change of the join record, which all control planes follow.

use std::sync::Arc;

use ironmesh_catalog::{
    Cordon, CordonMode, JoinRecord, MachineDrain, MachineDrainState, ProxyId, StoreError,
};
use jiff::Timestamp;

use super::Register;

/// The order of an operator to take a proxy out of service.
#[derive(Debug, Clone)]
pub(crate) struct CordonOrder {
    pub(crate) mode: CordonMode,
    pub(crate) by: Option<String>,
    pub(crate) reason: Option<String>,
    pub(crate) at: Timestamp,
}

impl Register {
    /// Cordons or drains a proxy. Returns whether that changed its record, which it does not if the proxy is out of service
    /// already, revoked, or gone.
    pub(crate) fn cordon(&self, id: ProxyId, order: &CordonOrder) -> Result<bool, StoreError> {
        self.change_cordon(id, |record| {
            let CordonOrder { mode, by, reason, at } = order.clone();
            Cordon::requested(record.cordon.as_ref(), mode, by, reason, at).map(Some)
        })
    }

    /// Returns a proxy to service. Returns whether that changed its record.
    pub(crate) fn uncordon(&self, id: ProxyId) -> Result<bool, StoreError> {
        self.change_cordon(id, |record| record.cordon.is_some().then_some(None))
    }

    /// Records how far a machine is with the order to drain it that was given at `ordered`. A late report about an earlier
    /// order changes nothing.
    pub(crate) fn record_machine_drain(
        &self,
        id: ProxyId,
        ordered: Timestamp,
        state: MachineDrainState,
        now: Timestamp,
    ) -> Result<(), StoreError> {
        let changed = |record: &Arc<JoinRecord>| {
            let mut cordon = record.cordon.clone()?;
            let drain = cordon.drain.as_mut().filter(|drain| drain.since == ordered)?;
            if drain.machine.is_some_and(|known| known.state == state) {
                return None;
            }
            drain.machine = Some(MachineDrain { state, since: now });
            Some(Some(cordon))
        };
        // Nearly every report repeats what is recorded, and needs no lock.
        if self.get(id).is_none_or(|record| changed(&record).is_none()) {
            return Ok(());
        }
        self.change_cordon(id, changed).map(|_| ())
    }

    /// Replaces the cordon of a proxy that is not revoked by what `new` returns for its record, if it returns anything.
    fn change_cordon(
        &self,
        id: ProxyId,
        new: impl Fn(&Arc<JoinRecord>) -> Option<Option<Cordon>>,
    ) -> Result<bool, StoreError> {
        let mut is_changed = false;
        self.change(|records| {
            let record = records.get(&id).filter(|record| record.revoked.is_none());
            let changed = record.and_then(|record| {
                new(record).map(|cordon| JoinRecord { cordon, ..(**record).clone() })
            });
            // (It is called again after a conflict.)
            is_changed = changed.is_some();
            changed.into_iter().collect()
        })?;
        Ok(is_changed)
    }
}
