//! The proxies whose bootstrap has one address of the control plane, by the node metadata of their last stream.
//!
//! If that control plane fails, they connect to no other one. Bootstraps that do not specify their addresses are
//! unknown, and not listed.

use std::collections::BTreeMap;
use std::net::SocketAddr;

use ironmesh_catalog::codes::SINGLE_ADDRESS;
use ironmesh_catalog::{Finding, NodeMetadata, ObjectRef, ProxyId, Records};
use parking_lot::Mutex;

/// The most proxies that the finding names.
const NAMED: usize = 10;

/// The proxies with one address.
#[derive(Debug, Default)]
pub(crate) struct SingleAddresses(Mutex<BTreeMap<ProxyId, SocketAddr>>);

impl SingleAddresses {
    /// Records what an admitted proxy reports.
    pub(crate) fn note(&self, id: ProxyId, metadata: &NodeMetadata) {
        let mut all = self.0.lock();
        match metadata.only_address() {
            Some(address) => all.insert(id, address),
            None => all.remove(&id),
        };
    }

    /// The finding about those of them that are enrolled; forgets the others. A proxy that is connected elsewhere is listed
    /// there, or has more addresses now.
    pub(crate) fn finding(
        &self,
        records: &Records,
        is_elsewhere: impl Fn(ProxyId) -> bool,
    ) -> Option<Finding> {
        let mut all = self.0.lock();
        all.retain(|id, _| records.contains_key(id) && !is_elsewhere(*id));
        let named = all.iter().take(NAMED).filter_map(|(id, address)| {
            Some(format!("{} ({address})", records.get(id)?.display_name()))
        });
        let mut named: Vec<_> = named.collect();
        let count = all.len();
        let objects: Vec<_> = all.keys().map(|id| ObjectRef::Proxy(*id)).collect();
        drop(all);
        if count > NAMED {
            named.push(format!("{} more", count - NAMED));
        }
        let proxies = if count == 1 { "1 proxy knows" } else { &format!("{count} proxies know") };
        let message = format!(
            "{proxies} one address of the control plane, though this mesh has several control planes: {}",
            named.join(", ")
        );
        let help = "if that control plane fails, a proxy without an agent gets no changes. List all control planes in \
                    `advertise`, or one DNS name for them, and enroll these proxies again; or write the addresses into \
                    their bootstraps. For a machine with an agent, list them in `control_plane` of `agent.toml`";
        let finding =
            || Finding::warning(SINGLE_ADDRESS, None, message).objects(objects).help(help);
        (count > 0).then(finding)
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ironmesh_catalog::JoinRecord;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> ProxyId {
        ProxyId(Uuid::from_u128(number))
    }

    fn metadata(addresses: &[&str]) -> NodeMetadata {
        let control_plane = addresses.iter().map(ToString::to_string).collect();
        NodeMetadata { control_plane, ..NodeMetadata::default() }
    }

    #[test]
    fn proxies_with_one_address_are_counted_and_some_are_named() {
        let address = "10.0.0.1:15003".parse().unwrap();
        let record = |number| {
            let services = vec!["shop/store".parse().unwrap()];
            let (from, to) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
            (id(number), Arc::new(JoinRecord::new(id(number), services, address, from, to)))
        };
        let records: Records = (0..15).map(record).collect();
        let addresses = SingleAddresses::default();
        assert_eq!(addresses.finding(&records, |_| false), None);
        for (number, known) in [
            (0, &["10.0.0.9:15128"][..]),
            (1, &["10.0.0.9:15128", "10.0.0.8:15128"]),
            (2, &["cp.example:15128"]),
            // A bootstrap of an earlier version.
            (3, &[]),
            // It was removed meanwhile.
            (99, &["10.0.0.9:15128"]),
        ] {
            addresses.note(id(number), &metadata(known));
        }
        let found = addresses.finding(&records, |_| false).unwrap();
        assert!(found.message.starts_with("1 proxy knows one address"), "{found}");
        assert!(found.message.ends_with("(10.0.0.9:15128)"), "{found}");

        // It has a new bootstrap.
        addresses.note(id(0), &metadata(&["10.0.0.9:15128", "10.0.0.8:15128"]));
        assert_eq!(addresses.finding(&records, |_| false), None);

        for number in 0..15 {
            addresses.note(id(number), &metadata(&["10.0.0.9:15128"]));
        }
        let found = addresses.finding(&records, |_| false).unwrap();
        assert!(found.message.starts_with("15 proxies know") && !found.is_error(), "{found}");
        assert!(found.message.ends_with(", 5 more"), "{found}");
        assert_eq!(found.message.matches("(10.0.0.9:15128)").count(), NAMED, "{found}");

        // The first ten have moved.
        let found = addresses.finding(&records, |one| one < id(10)).unwrap();
        assert!(found.message.starts_with("5 proxies know"), "{found}");
        let found = addresses.finding(&records, |_| false).unwrap();
        assert!(found.message.starts_with("5 proxies know"), "they are forgotten: {found}");
    }
}
