//! The addresses of the control plane that proxies get.

use std::net::{IpAddr, SocketAddr};

/// Where proxies reach xDS.
#[derive(Debug, Clone)]
pub(crate) struct XdsAddresses {
    /// The address of the xDS listener.
    pub(crate) listener: SocketAddr,
    /// The configured addresses, as host and port; empty = derived from the listener's.
    pub(crate) advertise: Vec<(String, u16)>,
}

impl XdsAddresses {
    /// The addresses for a proxy at `address`, and a note if they do not suffice.
    pub(crate) fn for_proxy_at(&self, address: IpAddr) -> (Vec<(String, u16)>, Option<String>) {
        if !self.advertise.is_empty() {
            return (self.advertise.clone(), None);
        }
        let port = self.listener.port();
        let host = host(self.listener);
        let note = format!(
            "the bootstrap names the control plane {host}:{port}; for a proxy on another machine set `advertise` in the settings"
        );
        let is_elsewhere = host.is_loopback() && !address.is_loopback();
        (vec![(host.to_string(), port)], is_elsewhere.then_some(note))
    }

    /// Where machines reach the enrollment listener, which listens at `enrollment`: at the hosts of `advertise`.
    pub(crate) fn of_enrollment(&self, enrollment: SocketAddr) -> Vec<(String, u16)> {
        let port = enrollment.port();
        if self.advertise.is_empty() {
            return vec![(host(enrollment).to_string(), port)];
        }
        let mut hosts: Vec<_> =
            self.advertise.iter().map(|(host, _)| (host.clone(), port)).collect();
        hosts.dedup();
        hosts
    }
}

/// The address by which clients on this machine reach a listener.
fn host(listener: SocketAddr) -> IpAddr {
    match listener.ip() {
        any if any.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
        one => one,
    }
}
