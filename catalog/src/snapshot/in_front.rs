//! Which proxies stand in front of an endpoint.

use std::collections::{BTreeMap, BTreeSet};
use std::net::IpAddr;
use std::sync::Arc;

use crate::endpoint::Endpoint;
use crate::proxy::{JoinRecord, ProxyId};

/// The proxies of one service, by what endpoints know of them.
pub(super) struct InFront<'a> {
    by_id: BTreeMap<ProxyId, [&'a JoinRecord; 1]>,
    by_address: BTreeMap<IpAddr, Vec<&'a JoinRecord>>,
}

impl<'a> InFront<'a> {
    pub(super) fn new(records: &'a [Arc<JoinRecord>]) -> Self {
        let mut by_address: BTreeMap<_, Vec<_>> = BTreeMap::new();
        for record in records {
            by_address.entry(record.mesh_address.ip()).or_default().push(&**record);
        }
        let by_id = records.iter().map(|record| (record.id, [&**record]));
        Self { by_id: by_id.collect(), by_address }
    }

    /// The proxy that the provider names, else those that joined with the endpoint's address.
    pub(super) fn candidates(&self, endpoint: &Endpoint) -> &[&'a JoinRecord] {
        let found = match endpoint.proxy {
            Some(id) => self.by_id.get(&id).map(<[_; 1]>::as_slice),
            None => self.by_address.get(&endpoint.address).map(Vec::as_slice),
        };
        found.unwrap_or_default()
    }

    /// The same, where it can be one proxy: several are one that joined again, if they agree on where they
    /// are dialled; if not, nobody can say which of them it is, and it is none.
    pub(super) fn proxies_of(&self, endpoint: &Endpoint) -> &[&'a JoinRecord] {
        let candidates = self.candidates(endpoint);
        let addresses: BTreeSet<_> = candidates.iter().map(|record| record.mesh_address).collect();
        if addresses.len() > 1 { &[] } else { candidates }
    }
}
