//! Which proxies may stand in front of an endpoint.

use std::collections::BTreeMap;
use std::net::IpAddr;
use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::proxy::{JoinRecord, ProxyId};

/// Proxies of one service, by what endpoints know of them.
#[derive(Debug, Default)]
pub(super) struct InFront {
    by_id: BTreeMap<ProxyId, [Arc<JoinRecord>; 1]>,
    by_address: BTreeMap<IpAddr, Vec<Arc<JoinRecord>>>,
}

impl InFront {
    pub(super) fn of(records: impl IntoIterator<Item = Arc<JoinRecord>>) -> Self {
        let mut in_front = Self::default();
        for record in records {
            for address in record.known_as() {
                in_front.by_address.entry(address).or_default().push(Arc::clone(&record));
            }
            in_front.by_id.insert(record.id, [record]);
        }
        in_front
    }

    /// All of them, by their ids.
    pub(super) fn all(&self) -> impl Iterator<Item = &Arc<JoinRecord>> {
        self.by_id.values().flatten()
    }

    /// The proxy that the provider names, else those whose machine has the endpoint's address.
    pub(super) fn candidates(&self, endpoint: &Endpoint) -> &[Arc<JoinRecord>] {
        let found = match endpoint.proxy {
            Some(id) => self.by_id.get(&id).map(<[_; 1]>::as_slice),
            None => self.by_address.get(&endpoint.address).map(Vec::as_slice),
        };
        found.unwrap_or_default()
    }
}
