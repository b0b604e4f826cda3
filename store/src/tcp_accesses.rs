//! The accesses to TCP service ports, a record for each port, with which the next policy is compared.

use std::collections::BTreeSet;

use imbl::ordmap::DiffItem;
use ironmesh_catalog::{ServicePort, StoreError, TcpAccess, TcpAccesses};

use crate::database::Failure;
use crate::mesh_state::{MeshState, expected, json, put, remove};
use crate::record_store::{
    RecordBytes, RecordChange, RecordError, TableName, Versioned, commit_parts,
};

pub(crate) const TCP_ACCESSES: TableName = TableName("tcp_accesses");

/// The key of the number of withdrawals in the mesh. No port has it: its name has a `/`.
const WITHDRAWALS: &str = "withdrawals";

impl MeshState {
    /// Stores the accesses to TCP service ports in place of `stored`, which are those that were stored or read last. Returns
    /// whether it does: not if another control plane has stored different ones of a port meanwhile.
    pub fn replace_tcp_accesses(
        &self,
        stored: &TcpAccesses,
        accesses: &TcpAccesses,
    ) -> Result<bool, StoreError> {
        let write = || -> Result<bool, Failure> {
            let mut changes = changes(stored, accesses)?;
            // What is not authentic was not read, so the difference does not have it.
            let stale = self.records.quarantined(TCP_ACCESSES);
            for change in &mut changes {
                if stale.contains(&change.key) {
                    continue;
                }
                let found = self.records.get(TCP_ACCESSES, &change.key)?;
                if !is_stored(stored, &change.key, found.as_ref())? {
                    return Ok(false);
                }
                change.expected = expected(found.map(|found| found.version));
            }
            let written: BTreeSet<String> =
                changes.iter().map(|change| change.key.clone()).collect();
            changes.extend(
                stale
                    .into_iter()
                    .filter(|key| !written.contains(key))
                    .map(|key| remove(TCP_ACCESSES, key)),
            );
            for part in commit_parts(&changes) {
                match self.records.commit(part) {
                    Ok(_) => {}
                    Err(RecordError::Conflict(_)) => return Ok(false),
                    Err(error) => return Err(error.into()),
                }
            }
            Ok(true)
        };
        write().map_err(|e| StoreError::new("store TCP callers", e))
    }

    /// The accesses to TCP service ports by the policy that was compiled last. Those of a port that are not authentic
    /// are omitted, so its connections end when policy is compiled.
    pub fn tcp_accesses(&self) -> Result<TcpAccesses, StoreError> {
        let read = || -> Result<_, Failure> {
            let mut accesses = TcpAccesses::default();
            for (key, record) in self.records.list(TCP_ACCESSES)? {
                if key == WITHDRAWALS {
                    accesses.withdrawals = serde_json::from_slice(&record.value)?;
                } else {
                    let (port, access): (ServicePort, TcpAccess) =
                        serde_json::from_slice(&record.value)?;
                    accesses.ports.insert(port, access);
                }
            }
            // The count never falls, so each port has at most that of the mesh.
            let highest = accesses.ports.values().map(|access| access.withdrawals).max();
            accesses.withdrawals = accesses.withdrawals.max(highest.unwrap_or_default());
            Ok(accesses)
        };
        read().map_err(|e| StoreError::new("read TCP callers", e))
    }
}

/// Whether the record at a key is as in `stored`.
fn is_stored(
    stored: &TcpAccesses,
    key: &str,
    found: Option<&Versioned<RecordBytes>>,
) -> Result<bool, Failure> {
    if key == WITHDRAWALS {
        let count: Option<u64> =
            found.map(|found| serde_json::from_slice(&found.value)).transpose()?;
        // The count may be that of a port, if its own record is not authentic.
        return Ok(count.is_none_or(|count| count <= stored.withdrawals));
    }
    let access: Option<(ServicePort, TcpAccess)> =
        found.map(|found| serde_json::from_slice(&found.value)).transpose()?;
    let known = key.parse().ok().and_then(|port: ServicePort| stored.ports.get(&port));
    Ok(access.as_ref().map(|(_, access)| access) == known)
}

/// The changes of records that lead from `stored` to `accesses`.
pub(crate) fn changes(
    stored: &TcpAccesses,
    accesses: &TcpAccesses,
) -> Result<Vec<RecordChange>, Failure> {
    let change =
        |difference: DiffItem<'_, '_, ServicePort, TcpAccess>| -> Result<RecordChange, Failure> {
            Ok(match difference {
                DiffItem::Add(port, access) | DiffItem::Update { new: (port, access), .. } => {
                    put(TCP_ACCESSES, port.to_string(), json(&(port, access))?)
                }
                DiffItem::Remove(port, _) => remove(TCP_ACCESSES, port.to_string()),
            })
        };
    let ports = stored.ports.diff(&accesses.ports).map(change);
    let mut changes = ports.collect::<Result<Vec<_>, _>>()?;
    if stored.withdrawals != accesses.withdrawals {
        changes.push(put(TCP_ACCESSES, WITHDRAWALS, json(&accesses.withdrawals)?));
    }
    Ok(changes)
}
