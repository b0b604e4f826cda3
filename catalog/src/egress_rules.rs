//! The egress rules of one account: the hosts and addresses outside the mesh that egress objects allow.
//!
//! This module owns the combination of [`Egress`] objects, for the compiler and for verdicts, and the ranges that
//! proxies block. It never resolves names.

mod blocked;

use std::collections::BTreeMap;
use std::net::IpAddr;

use crate::ip_range::IpRange;
use crate::name::Hostname;
use crate::policy::{Egress, EgressPort, EgressProtocol};

pub use blocked::{blocked_ranges, loopback};

/// The destinations outside the mesh that an account may call.
#[derive(Debug, Clone, Default)]
pub struct EgressRules<'a> {
    /// By host and port. Rules for `*.example.com` also apply to a host below it that policy names separately.
    pub by_host: BTreeMap<(&'a Hostname, u16), EgressRulesByHost<'a>>,
    /// By port: the rules with address ranges.
    pub by_address: BTreeMap<u16, Vec<EgressRuleByAddress<'a>>>,
}

/// The egress objects that allow a host on one port, in the order of their names.
#[derive(Debug, Clone, Default)]
pub struct EgressRulesByHost<'a> {
    /// Those that allow plain HTTP requests.
    pub requests: Vec<&'a Egress>,
    /// Those that allow connections, with the protocol that policy sets.
    pub connections: Vec<(&'a Egress, EgressProtocol)>,
}

/// An egress object that allows addresses on one port.
#[derive(Debug, Clone, Copy)]
pub struct EgressRuleByAddress<'a> {
    /// The egress, whose `ip_addresses` these are.
    pub egress: &'a Egress,
    /// The protocol of the port.
    pub protocol: EgressProtocol,
}

impl<'a> EgressRules<'a> {
    /// The rules of these egress objects.
    pub fn of(all: impl IntoIterator<Item = &'a Egress>) -> Self {
        let all: Vec<_> = all.into_iter().collect();
        let mut rules = Self::default();
        for egress in &all {
            for EgressPort { number, protocol } in &egress.ports {
                for host in &egress.hosts {
                    rules.by_host.entry((host, *number)).or_default();
                }
                if egress.hosts.is_empty() {
                    let by_address = EgressRuleByAddress { egress, protocol: *protocol };
                    rules.by_address.entry(*number).or_default().push(by_address);
                }
            }
        }
        for ((host, number), exit) in &mut rules.by_host {
            let covering =
                all.iter().filter(|one| one.hosts.iter().any(|known| known.covers(host)));
            for egress in covering {
                for port in egress.ports.iter().filter(|port| port.number == *number) {
                    match port.protocol {
                        EgressProtocol::Http => exit.requests.push(egress),
                        other => exit.connections.push((egress, other)),
                    }
                }
            }
        }
        rules
    }

    /// Whether there are no rules.
    pub fn is_empty(&self) -> bool {
        self.by_host.is_empty() && self.by_address.is_empty()
    }

    /// The rules for `host`, which is not a wildcard, on a port: those of the most specific name.
    pub fn at_host(
        &self,
        host: &Hostname,
        port: u16,
    ) -> Option<(&'a Hostname, &EgressRulesByHost<'a>)> {
        let known = self
            .by_host
            .iter()
            .filter(|((known, number), _)| *number == port && known.covers(host));
        // The longer of two names is more specific; a name without a wildcard is the host itself.
        let ((known, _), exit) = known.max_by_key(|((known, _), _)| known.as_str().len())?;
        Some((*known, exit))
    }

    /// The rules for an address on a port.
    pub fn at_address(&self, address: IpAddr, port: u16) -> Vec<EgressRuleByAddress<'a>> {
        let address = IpRange::of(address);
        let of_port = self.by_address.get(&port).into_iter().flatten();
        let includes = |one: &&EgressRuleByAddress<'a>| {
            one.egress.ip_addresses.iter().any(|range| range.includes(address))
        };
        of_port.filter(includes).copied().collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::finding::Spot;

    fn egress(name: &str, hosts: &[&str], ranges: &[&str], ports: &[EgressPort]) -> Egress {
        Egress {
            namespace: "default".parse().unwrap(),
            name: name.parse().unwrap(),
            sources: vec!["till".parse().unwrap()],
            hosts: hosts.iter().map(|host| Hostname::new(host).unwrap()).collect(),
            ip_addresses: ranges.iter().map(|range| range.parse().unwrap()).collect(),
            ports: ports.to_vec(),
            matches: Vec::new(),
            spot: Spot::new(&"p.toml".into(), "x", 0..1),
        }
    }

    const HTTP: EgressPort = EgressPort { number: 80, protocol: EgressProtocol::Http };
    const HTTPS: EgressPort = EgressPort { number: 443, protocol: EgressProtocol::Https };
    const TCP: EgressPort = EgressPort { number: 5432, protocol: EgressProtocol::Tcp };

    #[test]
    fn wildcard_host_egress_adds_to_egress_of_a_host_below_it() {
        let all = [
            egress("all", &["*.example.com"], &[], &[HTTP, HTTPS]),
            egress("one", &["api.example.com"], &[], &[HTTP]),
        ];
        let rules = EgressRules::of(&all);
        let names = |host: &str, port| {
            let (known, exit) = rules.at_host(&Hostname::new(host).unwrap(), port)?;
            let names = exit.requests.iter().map(|one| one.name.to_string()).collect::<Vec<_>>();
            Some((known.to_string(), names, exit.connections.len()))
        };
        let expected = |host: &str, names: &[&str], connections| {
            let names = names.iter().map(|name| (*name).to_owned()).collect();
            Some((host.to_owned(), names, connections))
        };
        assert_eq!(names("api.example.com", 80), expected("api.example.com", &["all", "one"], 0));
        assert_eq!(names("api.example.com", 443), expected("*.example.com", &[], 1));
        assert_eq!(names("a.b.example.com", 80), expected("*.example.com", &["all"], 0));
        assert_eq!(names("example.com", 80), None);
        assert_eq!(names("api.example.com", 8080), None);
    }

    #[test]
    fn egress_at_an_address_ignores_objects_that_name_hosts() {
        let all = [
            egress("db", &[], &["10.1.0.0/16"], &[TCP]),
            egress("web", &["api.example.com"], &["10.0.0.0/8"], &[HTTP, TCP]),
        ];
        let rules = EgressRules::of(&all);
        let names = |address: &str, port| {
            let known = rules.at_address(address.parse().unwrap(), port);
            known.iter().map(|one| one.egress.name.to_string()).collect::<Vec<_>>()
        };
        assert_eq!(names("10.1.2.3", 5432), ["db"]);
        assert_eq!(names("::ffff:10.1.2.3", 5432), ["db"]);
        assert!(names("10.2.0.1", 5432).is_empty());
        assert!(names("10.1.2.3", 80).is_empty());
        assert!(EgressRules::of(&[]).is_empty() && !rules.is_empty());
    }
}
