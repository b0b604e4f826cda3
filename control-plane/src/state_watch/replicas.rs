//! The findings about several control planes of one mesh: how proxies spread over them, and their versions.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::codes::PROXIES_REFUSED;
use ironmesh_catalog::{Finding, ObjectRef, ProxyId, Records};
use ironmesh_xds_server::Hub;
use tokio::time::Instant;

use super::NAMED;
use crate::peers::{Peers, version_finding};
use crate::register::Register;
use crate::single_addresses::SingleAddresses;

/// How long a proxy may look for a control plane that serves it, before it counts as served by none. It tries its addresses
/// within a second each, and peers note its connection within two.
const SEARCH_TIME: Duration = Duration::from_secs(10);

/// What the findings are read from.
pub(crate) struct Replicas {
    pub(crate) hub: Arc<Hub>,
    pub(crate) peers: Arc<Peers>,
    pub(crate) register: Arc<Register>,
    pub(crate) single_addresses: Arc<SingleAddresses>,
    /// The most proxies that this control plane serves.
    pub(crate) max_proxies: Option<usize>,
    pub(crate) searches: Searches,
}

/// The refused proxies that look for a control plane, each with the time since which no control plane serves it.
#[derive(Debug, Default)]
pub(crate) struct Searches(BTreeMap<ProxyId, Instant>);

impl Searches {
    /// The proxies of these that no control plane has served for [`SEARCH_TIME`]. A proxy that was served meanwhile begins
    /// to look again, even if its refusal here was before.
    fn unserved(
        &mut self,
        refused: &BTreeSet<ProxyId>,
        is_elsewhere: impl Fn(ProxyId) -> bool,
        now: Instant,
    ) -> BTreeSet<ProxyId> {
        self.0.retain(|id, _| refused.contains(id) && !is_elsewhere(*id));
        for id in refused.iter().filter(|id| !is_elsewhere(**id)) {
            self.0.entry(*id).or_insert(now);
        }
        let is_over = |since: &Instant| now >= *since + SEARCH_TIME;
        self.0.iter().filter(|(_, since)| is_over(since)).map(|(id, _)| *id).collect()
    }
}

/// What is known of the refused proxies that no control plane serves.
#[derive(Debug, Clone, PartialEq, Eq)]
enum Unserved {
    Known(BTreeSet<ProxyId>),
    /// Peers note nothing, since etcd cannot be used.
    Unknown,
}

impl Replicas {
    /// All of them.
    pub(super) fn findings(&mut self) -> Vec<Finding> {
        let records = self.register.records();
        let refused = self.max_proxies.and_then(|most| {
            let refused = self.hub.refused_clients().into_iter();
            let refused = refused.filter_map(|client| client.parse().ok());
            // A proxy that was revoked meanwhile is none.
            let refused = refused.filter(|id| records.contains_key(id)).collect();
            let unserved = if self.peers.is_current() {
                let is_elsewhere = |id| self.peers.is_connected(id);
                Unserved::Known(self.searches.unserved(&refused, is_elsewhere, Instant::now()))
            } else {
                self.searches = Searches::default();
                Unserved::Unknown
            };
            rejection_finding(most, refused.len(), &unserved, &records)
        });
        let is_elsewhere =
            |id| self.peers.is_connected(id) && self.hub.streams(&ProxyId::to_string(&id)) == 0;
        let single = self.peers.is_any();
        let single =
            single.then(|| self.single_addresses.finding(&records, is_elsewhere)).flatten();
        let versions = version_finding(env!("CARGO_PKG_VERSION"), &self.peers.versions());
        refused.into_iter().chain(single).chain(versions).collect()
    }
}

/// The finding about so many refused proxies. It is an error if no control plane serves one of them.
fn rejection_finding(
    most: usize,
    refused: usize,
    unserved: &Unserved,
    records: &Records,
) -> Option<Finding> {
    let proxies = |count: usize| match count {
        1 => "1 proxy".to_owned(),
        several => format!("{several} proxies"),
    };
    if let Unserved::Known(unserved) = unserved
        && !unserved.is_empty()
    {
        let count = unserved.len();
        let names = unserved.iter();
        let mut names: Vec<_> =
            names.filter_map(|id| Some(records.get(id)?.display_name().to_string())).collect();
        names.sort();
        if count > NAMED {
            names.truncate(NAMED);
            names.push(format!("{} more", count - NAMED));
        }
        let message = format!(
            "no control plane serves {}, because the limit of this one is reached (`xds.max_proxies` = {most}): {}",
            proxies(count),
            names.join(", ")
        );
        let help = "add a control plane, or raise `xds.max_proxies`. The proxies keep their last configuration, and try all \
                    addresses that they know again";
        let objects = unserved.iter().map(|id| ObjectRef::Proxy(*id));
        let finding = Finding::error(PROXIES_REFUSED, None, message).objects(objects);
        return Some(finding.help(help));
    }
    let message = format!(
        "this control plane refused {} in the last minute, because its limit is reached (`xds.max_proxies` = {most})",
        proxies(refused)
    );
    let help = match unserved {
        Unserved::Known(_) => {
            "other control planes serve them, or are tried now. If this lasts, add a control plane, or raise \
             `xds.max_proxies`"
        }
        Unserved::Unknown => {
            "it is unknown whether other control planes serve them, since etcd cannot be used: see `ironmesh status` of the \
             others"
        }
    };
    (refused > 0).then(|| Finding::warning(PROXIES_REFUSED, None, message).help(help))
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::JoinRecord;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> ProxyId {
        ProxyId(Uuid::from_u128(number))
    }

    #[test]
    fn refused_proxy_is_an_error_if_no_control_plane_serves_it() {
        let record = |number| {
            let services = vec!["shop/store".parse().unwrap()];
            let address = "10.0.0.1:15003".parse().unwrap();
            let (from, to) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
            (id(number), Arc::new(JoinRecord::new(id(number), services, address, from, to)))
        };
        let records: Records = (0..50).map(record).collect();
        let find = |refused, unserved: &[u128]| {
            let unserved = Unserved::Known(unserved.iter().map(|number| id(*number)).collect());
            rejection_finding(5, refused, &unserved, &records)
        };
        assert_eq!(find(0, &[]), None);
        assert_eq!(rejection_finding(5, 0, &Unserved::Unknown, &records), None);

        let searching = find(2, &[]).unwrap();
        assert!(!searching.is_error());
        assert!(searching.message.contains("refused 2 proxies"), "{searching}");
        assert!(searching.message.contains("`xds.max_proxies` = 5"), "{searching}");
        assert!(searching.help.as_ref().unwrap().contains("or are tried now"), "{searching}");

        let unknown = rejection_finding(5, 2, &Unserved::Unknown, &records).unwrap();
        assert!(!unknown.is_error());
        assert!(unknown.help.as_ref().unwrap().contains("it is unknown whether"), "{unknown}");

        let unserved = find(3, &[1]).unwrap();
        assert!(unserved.is_error());
        assert!(unserved.message.contains("serves 1 proxy,"), "{unserved}");
        let name = records.get(&id(1)).unwrap().display_name().to_string();
        assert!(unserved.message.ends_with(&format!(": {name}")), "{unserved}");

        let many = find(50, &(0..50).collect::<Vec<_>>()).unwrap();
        assert!(many.message.ends_with(", 40 more"), "{many}");
    }

    #[test]
    fn search_begins_again_after_service_elsewhere() {
        let (mut searches, begin) = (Searches::default(), Instant::now());
        let refused = BTreeSet::from([id(1), id(2)]);
        let mut unserved = |second, elsewhere: &[u128]| {
            let is_elsewhere = |one| elsewhere.iter().any(|number| id(*number) == one);
            searches.unserved(&refused, is_elsewhere, begin + Duration::from_secs(second))
        };
        assert_eq!(unserved(0, &[]), BTreeSet::new());
        // The first one has found a place, the second one has not.
        assert_eq!(unserved(3, &[1]), BTreeSet::new());
        assert_eq!(unserved(10, &[1]), [id(2)].into());
        // The control plane of the first one ends.
        assert_eq!(unserved(30, &[]), [id(2)].into());
        assert_eq!(unserved(32, &[]), [id(2)].into());
        assert_eq!(unserved(33, &[1, 2]), BTreeSet::new());
        assert_eq!(unserved(50, &[2]), BTreeSet::new());
        assert_eq!(unserved(60, &[2]), [id(1)].into());
        assert_eq!(searches.unserved(&BTreeSet::new(), |_| false, begin), BTreeSet::new());
        assert!(searches.0.is_empty(), "those that are not refused any more are forgotten");
    }
}
