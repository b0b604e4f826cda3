//! The names of proxies in the transactions of the register: one that gives a name to a proxy also writes the record of the
//! name, with a condition on its version. So of two control planes that give one name at once, one meets a conflict.

use std::collections::BTreeSet;

use ironmesh_catalog::{JoinRecord, ProxyId, ProxyName, StoreError};
use ironmesh_store::{
    ExpectedVersion, NamedProxy, Record as _, RecordAddress, RecordChange, RecordError, Versioned,
};

use super::Register;

impl Register {
    /// The change that gives its name to a proxy; none if it has the name already. `changed` are all records of the commit.
    /// A name of a different proxy is a conflict, unless that is revoked, removed or without the name after the commit.
    pub(super) fn naming(
        &self,
        record: &JoinRecord,
        changed: &[JoinRecord],
    ) -> Result<Option<RecordChange>, RecordError> {
        let Some(name) = record.name.as_ref().filter(|_| record.revoked.is_none()) else {
            return Ok(None);
        };
        if self.get(record.id).is_some_and(|known| known.name.as_ref() == Some(name)) {
            return Ok(None);
        }
        let stored = self.named_proxy(name)?;
        let expected = match &stored {
            None if self.names.quarantined().contains(name.as_str()) => ExpectedVersion::Any,
            None => ExpectedVersion::Absent,
            Some(stored) => ExpectedVersion::Exactly(stored.version),
        };
        let holder = stored.map(|stored| stored.value.proxy).filter(|holder| *holder != record.id);
        if let Some(holder) = holder
            && self.has_name(holder, name, changed)?
        {
            let address = RecordAddress { table: NamedProxy::TABLE, key: name.to_string() };
            return Err(RecordError::Conflict(vec![address]));
        }
        RecordChange::put(&NamedProxy::new(name.clone(), record.id), expected).map(Some)
    }

    /// The removal of the record of a proxy's name, if it is that of this proxy.
    pub(super) fn unnaming(&self, id: ProxyId) -> Result<Option<RecordChange>, RecordError> {
        let Some(name) = self.get(id).and_then(|record| record.name.clone()) else {
            return Ok(None);
        };
        let stored = self.named_proxy(&name)?.filter(|stored| stored.value.proxy == id);
        Ok(stored.map(|stored| {
            let expected = ExpectedVersion::Exactly(stored.version);
            RecordChange::remove::<NamedProxy>(name.as_str(), expected)
        }))
    }

    /// The proxies with a name that the register does not show: other control planes have named them a moment ago.
    pub(super) fn newly_named(&self) -> Result<BTreeSet<ProxyId>, StoreError> {
        let named = self.names.list();
        let named = named.map_err(|e| StoreError::new("read the names of the proxies", e))?;
        let records = self.records.lock();
        let is_shown = |named: &NamedProxy| {
            records
                .all
                .get(&named.proxy)
                .is_some_and(|record| record.name.as_ref() == Some(&named.name))
        };
        let named = named.into_iter().map(|stored| stored.value);
        Ok(named.filter(|named| !is_shown(named)).map(|named| named.proxy).collect())
    }

    /// The stored record of a name. A quarantined one counts as missing, as a quarantined join record does.
    fn named_proxy(&self, name: &ProxyName) -> Result<Option<Versioned<NamedProxy>>, RecordError> {
        match self.names.get(name.as_str()) {
            Err(RecordError::Corrupt(_)) if self.names.quarantined().contains(name.as_str()) => {
                Ok(None)
            }
            stored => stored,
        }
    }

    /// Whether a proxy has the name after a commit of these records: as stored, since the register may not show it yet. A
    /// proxy whose certificate has expired has its name: it may renew.
    fn has_name(
        &self,
        id: ProxyId,
        name: &ProxyName,
        changed: &[JoinRecord],
    ) -> Result<bool, RecordError> {
        let has =
            |record: &JoinRecord| record.revoked.is_none() && record.name.as_ref() == Some(name);
        if let Some(record) = changed.iter().find(|record| record.id == id) {
            return Ok(has(record));
        }
        match self.table.get(&id.to_string()) {
            Ok(stored) => Ok(stored.is_some_and(|stored| has(&stored.value))),
            Err(RecordError::Corrupt(_)) if self.quarantined().contains(&id) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
