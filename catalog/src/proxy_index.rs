//! Which proxies may stand in front of an endpoint.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use uuid::Uuid;

use crate::endpoint::Endpoint;
use crate::proxy::{JoinRecord, ProxyId};

/// Proxies of one service, by what endpoints know of them.
#[derive(Debug, Default)]
pub(crate) struct ProxyIndex {
    by_id: BTreeMap<ProxyId, [Arc<JoinRecord>; 1]>,
    by_machine: BTreeMap<Uuid, Vec<Arc<JoinRecord>>>,
    by_address: BTreeMap<IpAddr, Vec<Arc<JoinRecord>>>,
    /// Of those that have not said on which machine they are.
    unplaced_by_address: BTreeMap<IpAddr, Vec<Arc<JoinRecord>>>,
}

impl ProxyIndex {
    pub(crate) fn of(records: impl IntoIterator<Item = Arc<JoinRecord>>) -> Self {
        let mut in_front = Self::default();
        for record in records {
            let addresses = record.known_as();
            match record.machine {
                Some(machine) => {
                    in_front.by_machine.entry(machine).or_default().push(Arc::clone(&record));
                }
                None => {
                    for address in &addresses {
                        let at = in_front.unplaced_by_address.entry(*address).or_default();
                        at.push(Arc::clone(&record));
                    }
                }
            }
            for address in addresses {
                in_front.by_address.entry(address).or_default().push(Arc::clone(&record));
            }
            in_front.by_id.insert(record.id, [record]);
        }
        in_front
    }

    /// All of them, by their ids.
    pub(crate) fn all(&self) -> impl Iterator<Item = &Arc<JoinRecord>> {
        self.by_id.values().flatten()
    }

    /// The proxy that the provider names; else those on the machine that it names; else those whose machine
    /// has the endpoint's address. Who has said on which machine it is, is on no other one: an address is
    /// given to another machine sooner or later.
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
