//! The findings about several control planes of one mesh: how proxies spread over them, and their versions.

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::codes::PROXIES_REFUSED;
use ironmesh_catalog::{Finding, ProxyId, Records};
use ironmesh_xds_server::Hub;

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
}

impl Replicas {
    /// All of them.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let records = self.register.records();
        let refused = self.max_proxies.and_then(|most| {
            let refused = self.hub.refused_clients().into_iter();
            let refused = refused.filter_map(|(client, time)| Some((client.parse().ok()?, time)));
            let is_elsewhere = |id| self.peers.is_connected(id);
            rejection_finding(most, &refused.collect::<Vec<_>>(), is_elsewhere, &records)
        });
        let single = self.peers.is_any().then(|| self.single_addresses.finding(&records)).flatten();
        let versions = version_finding(env!("CARGO_PKG_VERSION"), &self.peers.versions());
        refused.into_iter().chain(single).chain(versions).collect()
    }
}

/// The finding about refused proxies, each with the time since it was refused first. It is an error if no control plane
/// serves one of them.
fn rejection_finding(
    most: usize,
    refused: &[(ProxyId, Duration)],
    is_elsewhere: impl Fn(ProxyId) -> bool,
    records: &Records,
) -> Option<Finding> {
    let refused: Vec<_> = refused.iter().filter(|(id, _)| records.contains_key(id)).collect();
    let is_served_by_none =
        |(id, time): &(ProxyId, Duration)| *time >= SEARCH_TIME && !is_elsewhere(*id);
    let mut unserved: Vec<_> = refused
        .iter()
        .filter(|one| is_served_by_none(one))
        .filter_map(|(id, _)| Some(records.get(id)?.display_name().to_string()))
        .collect();
    unserved.sort();
    let count = unserved.len();
    if count > NAMED {
        unserved.truncate(NAMED);
        unserved.push(format!("{} more", count - NAMED));
    }
    let proxies = |count: usize| match count {
        1 => "1 proxy".to_owned(),
        several => format!("{several} proxies"),
    };
    if count > 0 {
        let message = format!(
            "no control plane serves {}, because the limit of this one is reached (`xds.max_proxies` = {most}): {}",
            proxies(count),
            unserved.join(", ")
        );
        let help = "add a control plane, or raise `xds.max_proxies`. The proxies keep their last configuration, and try all \
                    addresses that they know again";
        return Some(Finding::error(PROXIES_REFUSED, None, message).help(help));
    }
    let message = format!(
        "this control plane refused {} in the last minute, because its limit is reached (`xds.max_proxies` = {most})",
        proxies(refused.len())
    );
    let help = "other control planes serve them, or are tried now. If this lasts, add a control plane, or raise \
                `xds.max_proxies`";
    (!refused.is_empty()).then(|| Finding::warning(PROXIES_REFUSED, None, message).help(help))
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::JoinRecord;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    #[test]
    fn refused_proxy_is_an_error_if_no_control_plane_serves_it() {
        let id = |number: u128| ProxyId(Uuid::from_u128(number));
        let record = |number| {
            let services = vec!["shop/store".parse().unwrap()];
            let address = "10.0.0.1:15003".parse().unwrap();
            let (from, to) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
            (id(number), Arc::new(JoinRecord::new(id(number), services, address, from, to)))
        };
        let records: Records = (0..50).map(record).collect();
        let find = |refused: &[(u128, Duration)], elsewhere: &[u128]| {
            let refused: Vec<_> =
                refused.iter().map(|(number, time)| (id(*number), *time)).collect();
            let is_elsewhere = |one| elsewhere.iter().any(|number| id(*number) == one);
            rejection_finding(5, &refused, is_elsewhere, &records)
        };
        let (new, old) = (Duration::from_secs(1), SEARCH_TIME);
        assert_eq!(find(&[], &[]), None);
        // A proxy that was revoked meanwhile.
        assert_eq!(find(&[(99, old)], &[]), None);

        let searching = find(&[(1, new), (2, old)], &[2]).unwrap();
        assert!(!searching.is_error());
        assert!(searching.message.contains("refused 2 proxies"), "{searching}");
        assert!(searching.message.contains("`xds.max_proxies` = 5"), "{searching}");

        let unserved = find(&[(1, old), (2, old), (3, new)], &[2]).unwrap();
        assert!(unserved.is_error());
        assert!(unserved.message.contains("serves 1 proxy,"), "{unserved}");
        let name = records.get(&id(1)).unwrap().display_name().to_string();
        assert!(unserved.message.ends_with(&format!(": {name}")), "{unserved}");

        let many: Vec<_> = (0..50).map(|number| (number, old)).collect();
        let many = find(&many, &[]).unwrap();
        assert!(many.message.ends_with(", 40 more"), "{many}");
    }
}
