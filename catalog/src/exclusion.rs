//! Exclusion: reported endpoints that a service never uses, whatever their provider reports.
//!
//! Anyone with write access to a provider chooses addresses and ports. At a proxy such a port is a loopback
//! port of the machine, so without this rule a registrant could reach services that only the machine itself may
//! use (docs/decisions/0051). This module decides about one endpoint; it never considers proxies or health.

use std::net::IpAddr;

use crate::endpoint::{Endpoint, Exclusion, Provider};
use crate::reserved_ports;
use crate::service::Service;

impl Service {
    /// Why `endpoint` is excluded from this service; `None` if it is not. `allows_local_addresses`, which is
    /// for a mesh on one machine, allows loopback and link-local addresses.
    ///
    /// The rules do not apply to data of operators: static endpoints, the port of Azure's, and join records. A
    /// service with several ports ignores the reported port.
    pub fn exclusion_of(
        &self,
        endpoint: &Endpoint,
        allows_local_addresses: bool,
    ) -> Option<Exclusion> {
        if !endpoint.provider.is_external() {
            return None;
        }
        if !allows_local_addresses && is_local(endpoint.address) {
            return Some(Exclusion::LocalAddress);
        }
        let ([port], Provider::Consul, Some(reported)) =
            (self.ports.as_slice(), endpoint.provider, endpoint.port)
        else {
            return None;
        };
        if reserved_ports::all().any(|own| own == reported) {
            return Some(Exclusion::MeshPort);
        }
        let is_allowed = reported == port.target
            || port.allowed_targets.iter().any(|range| range.contains(reported));
        (!is_allowed).then_some(Exclusion::Port)
    }
}

/// Whether the address is loopback or link-local.
fn is_local(address: IpAddr) -> bool {
    match address.to_canonical() {
        IpAddr::V4(address) => address.is_loopback() || address.is_link_local(),
        IpAddr::V6(address) => address.is_loopback() || address.is_unicast_link_local(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::endpoint_source::EndpointSource;
    use crate::finding::Spot;
    use crate::name::Name;
    use crate::port_range::PortRange;
    use crate::service::{EscapedSlashes, Port, Protocol, Visibility};

    fn service(allowed: &[&str]) -> Service {
        let port = Port {
            name: Name::new("web").unwrap(),
            number: 80,
            protocol: Protocol::Http,
            target: 8080,
            allowed_targets: allowed.iter().map(|text| PortRange::parse(text).unwrap()).collect(),
        };
        Service {
            name: "shop/web".parse().unwrap(),
            account: "shop/web".parse().unwrap(),
            ports: vec![port],
            endpoints: EndpointSource::registered(),
            mode: None,
            visibility: Visibility::Public,
            escaped_slashes: EscapedSlashes::Reject,
            drained: false,
            health: None,
            external: None,
            subsets: Vec::new(),
            upstreams: Vec::new(),
            spot: Spot::new(&"p.toml".into(), "", 0..0),
            max_connection_duration: None,
        }
    }

    fn reported(provider: Provider, address: &str, port: u16) -> Endpoint {
        Endpoint { port: Some(port), ..Endpoint::new(provider, address.parse().unwrap()) }
    }

    #[test]
    fn consul_port_is_excluded_unless_policy_allows_it() {
        let excluded = |allowed: &[&str], port| {
            service(allowed).exclusion_of(&reported(Provider::Consul, "10.0.0.1", port), false)
        };
        assert_eq!(excluded(&[], 8080), None);
        for port in [80, 6379, 8500, 8081] {
            assert_eq!(excluded(&[], port), Some(Exclusion::Port), "{port}");
        }
        let allowed = ["8081", "20000-32000"];
        for port in [8080, 8081, 20_000, 32_000] {
            assert_eq!(excluded(&allowed, port), None, "{port}");
        }
        assert_eq!(excluded(&allowed, 32_001), Some(Exclusion::Port));
        // Policy cannot allow these either.
        for port in reserved_ports::all() {
            assert_eq!(excluded(&["1-65535"], port), Some(Exclusion::MeshPort), "{port}");
        }
        // Policy states the port of the others.
        for provider in [Provider::Static, Provider::Azure, Provider::Registered] {
            let endpoint = reported(provider, "10.0.0.1", 8500);
            assert_eq!(service(&[]).exclusion_of(&endpoint, false), None, "{provider}");
        }
    }

    #[test]
    fn reported_port_of_a_service_with_several_ports_has_no_effect() {
        let mut service = service(&[]);
        let other = Port { number: 81, ..service.ports[0].clone() };
        service.ports.push(other);
        let endpoint = reported(Provider::Consul, "10.0.0.1", 8500);
        assert_eq!(service.exclusion_of(&endpoint, false), None);
    }

    #[test]
    fn local_address_is_excluded_unless_the_mesh_is_one_machine() {
        let local =
            ["127.0.0.1", "127.8.9.1", "::1", "::ffff:127.0.0.1", "169.254.169.254", "fe80::1"];
        for address in local {
            for provider in [Provider::Consul, Provider::Azure] {
                let endpoint = reported(provider, address, 8080);
                let excluded = |allows| service(&[]).exclusion_of(&endpoint, allows);
                assert_eq!(excluded(false), Some(Exclusion::LocalAddress), "{address}");
                assert_eq!(excluded(true), None, "{address}");
            }
            let listed = reported(Provider::Static, address, 8080);
            assert_eq!(service(&[]).exclusion_of(&listed, false), None);
        }
        for address in ["10.0.0.1", "192.168.1.1", "2001:db8::1", "fd00::1"] {
            let endpoint = reported(Provider::Consul, address, 8080);
            assert_eq!(service(&[]).exclusion_of(&endpoint, false), None, "{address}");
        }
    }
}
