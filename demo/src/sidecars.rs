//! The sidecars of the bookstore, with their addresses and ports.

use std::net::SocketAddr;

use crate::addresses::Network;
use crate::error::Problem;
use crate::http_client::get_once;
use crate::waiting::ensure;

/// One proxy and the application behind it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Sidecar {
    /// Its name in the demo, and that of its folder.
    pub(crate) name: &'static str,
    /// The service that it serves.
    pub(crate) service: &'static str,
    /// The last part of its address.
    pub(crate) host: u8,
    /// The services that its application calls, each with its local port.
    pub(crate) upstreams: &'static [(&'static str, u16)],
    /// The port that it serves, as callers name it.
    pub(crate) serves: Option<u16>,
}

/// The port of the bookstore, and the local port of its callers' upstream.
pub(crate) const STORE_PORT: u16 = 14001;
/// The port of the warehouse, and the local port of its callers' upstream.
pub(crate) const WAREHOUSE_PORT: u16 = 14002;
/// The port at which an application listens.
pub(crate) const APPLICATION_PORT: u16 = 8080;

const STORE: (&str, u16) = ("default/bookstore", STORE_PORT);
const WAREHOUSE: (&str, u16) = ("default/bookwarehouse", WAREHOUSE_PORT);

pub(crate) const BUYER: Sidecar = Sidecar {
    name: "bookbuyer",
    service: "default/bookbuyer",
    host: 11,
    upstreams: &[STORE],
    serves: None,
};
pub(crate) const THIEF: Sidecar = Sidecar {
    name: "bookthief",
    service: "default/bookthief",
    host: 12,
    upstreams: &[STORE, WAREHOUSE],
    serves: None,
};
pub(crate) const FIRST: Sidecar = Sidecar {
    name: "bookstore-v1",
    service: "default/bookstore-v1",
    host: 21,
    upstreams: &[WAREHOUSE],
    serves: Some(STORE_PORT),
};
pub(crate) const SECOND: Sidecar = Sidecar {
    name: "bookstore-v2",
    service: "default/bookstore-v2",
    host: 22,
    upstreams: &[WAREHOUSE],
    serves: Some(STORE_PORT),
};
pub(crate) const WAREHOUSES: Sidecar = Sidecar {
    name: "bookwarehouse",
    service: "default/bookwarehouse",
    host: 31,
    upstreams: &[],
    serves: Some(WAREHOUSE_PORT),
};

/// The five initial sidecars.
pub(crate) const SIDECARS: [Sidecar; 5] = [WAREHOUSES, FIRST, SECOND, BUYER, THIEF];

/// The sidecar that is enrolled later: the second version at a new address.
pub(crate) const REPLACEMENT: Sidecar = Sidecar { name: "bookstore-v2-new", host: 23, ..SECOND };

/// The host of the control plane.
pub(crate) const CONTROL_PLANE: u8 = 1;
/// The xDS port of the control plane.
pub(crate) const XDS_PORT: u16 = 15128;
/// The admin port of the control plane.
pub(crate) const ADMIN_PORT: u16 = 15014;

const ENVOY_ADMIN_PORT: u16 = 15000;
const ENVOY_PORTS: [u16; 4] = [ENVOY_ADMIN_PORT, 15003, 15010, 15080];

/// All hosts and ports on which the demo will listen.
pub(crate) fn listeners() -> Vec<(u8, u16)> {
    let mut needed = vec![(CONTROL_PLANE, XDS_PORT), (CONTROL_PLANE, ADMIN_PORT)];
    for sidecar in SIDECARS.iter().chain([&REPLACEMENT]) {
        let upstreams = sidecar.upstreams.iter().map(|(_, port)| *port);
        let ports = ENVOY_PORTS.into_iter().chain(upstreams);
        let application = sidecar.serves.map(|_| APPLICATION_PORT);
        needed.extend(ports.chain(application).map(|port| (sidecar.host, port)));
    }
    needed
}

impl Sidecar {
    /// The local address of an upstream or an application.
    pub(crate) fn socket(&self, network: &Network, port: u16) -> SocketAddr {
        network.socket(self.host, port)
    }

    /// Fails unless its Envoy has its first configuration.
    pub(crate) async fn ready(&self, network: &Network) -> Result<(), Problem> {
        let answer = get_once(self.socket(network, ENVOY_ADMIN_PORT), "/ready").await?;
        match answer.text().trim() {
            "LIVE" => Ok(()),
            state => Err(Problem(format!("{} is {state}", self.name))),
        }
    }

    /// The number of requests that its Envoy has denied. The counter does not exist before the first one.
    pub(crate) async fn denied(&self, network: &Network) -> Result<u64, Problem> {
        // `^http\..*\.rbac\.denied$`
        let counts = self.counts(network, "%5Ehttp%5C..*%5C.rbac%5C.denied%24").await?;
        Ok(counts.iter().sum())
    }

    /// The number of requests for the store that its Envoy has retried.
    pub(crate) async fn retried(&self, network: &Network) -> Result<u64, Problem> {
        // `^cluster\..*\|14001\.upstream_rq_retry$`, without xDS requests.
        let filter = format!("%5Ecluster%5C..*%5C%7C{STORE_PORT}%5C.upstream_rq_retry%24");
        let counts = self.counts(network, &filter).await?;
        ensure(!counts.is_empty(), || format!("{} does not count its retries", self.name))?;
        Ok(counts.iter().sum())
    }

    /// The counters of its Envoy that match a percent-encoded filter.
    async fn counts(&self, network: &Network, filter: &str) -> Result<Vec<u64>, Problem> {
        let path = format!("/stats?filter={filter}");
        let answer = get_once(self.socket(network, ENVOY_ADMIN_PORT), &path).await?;
        let counts = answer.text();
        let counts = counts.lines().filter_map(|line| line.rsplit_once(": "));
        Ok(counts.filter_map(|(_, count)| count.parse::<u64>().ok()).collect())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn listener_addresses_are_unique() {
        let needed = listeners();
        let places: BTreeSet<_> = needed.iter().collect();
        assert_eq!(places.len(), needed.len());
        assert!(places.contains(&(12, 14002)) && places.contains(&(31, 8080)));
    }
}
