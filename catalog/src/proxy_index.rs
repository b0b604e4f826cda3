//! The index of the proxies of one service, by the keys that endpoints have.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;

use crate::endpoint::Endpoint;
use crate::proxy::{JoinRecord, ProxyId};

/// The proxies of one service, by id, machine and address.
#[derive(Debug, Default)]
pub(crate) struct ProxyIndex {
    by_id: BTreeMap<ProxyId, [Arc<JoinRecord>; 1]>,
    by_machine: BTreeMap<Uuid, Vec<Arc<JoinRecord>>>,
    by_address: BTreeMap<IpAddr, Vec<Arc<JoinRecord>>>,
    /// The proxies without a machine in their record.
    unplaced_by_address: BTreeMap<IpAddr, Vec<Arc<JoinRecord>>>,
}

impl ProxyIndex {
    pub(crate) fn of(records: impl IntoIterator<Item = Arc<JoinRecord>>) -> Self {
        let mut index = Self::default();
        for record in records {
            let addresses = record.known_as();
            match record.machine {
                Some(machine) => {
                    index.by_machine.entry(machine).or_default().push(Arc::clone(&record));
                }
                None => {
                    for address in &addresses {
                        let at = index.unplaced_by_address.entry(*address).or_default();
                        at.push(Arc::clone(&record));
                    }
                }
            }
            for address in addresses {
                index.by_address.entry(address).or_default().push(Arc::clone(&record));
            }
            index.by_id.insert(record.id, [record]);
        }
        index
    }

    /// All of them, by their ids.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<JoinRecord>> {
        self.by_id.values().flatten()
    }

    /// The proxy that the provider names; else the proxies on the machine that it names; else those with the
    /// endpoint's address. A proxy with a machine in its record matches no other machine, because addresses are
    /// reused.
    pub(crate) fn candidates(&self, endpoint: &Endpoint) -> &[Arc<JoinRecord>] {
        let found = match (endpoint.proxy, endpoint.machine) {
            (Some(id), _) => self.by_id.get(&id).map(<[_; 1]>::as_slice),
            (None, Some(machine)) => {
                let there = self.by_machine.get(&machine);
                there.or_else(|| self.unplaced_by_address.get(&endpoint.address)).map(Vec::as_slice)
            }
            (None, None) => self.by_address.get(&endpoint.address).map(Vec::as_slice),
        };
        found.unwrap_or_default()
    }
}
