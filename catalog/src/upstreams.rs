//! The upstreams of a proxy: the local ports that policy and its bootstrap declare, and which of them take effect.
//!
//! Policy declares them per service, so that a change needs no restart. The flags of a bootstrap declare them for one
//! proxy. This module decides between the two; the compiler decides what a local port leads to.

use std::collections::BTreeMap;
use std::fmt;

use crate::codes::{FLAG_OVERRIDDEN, UPSTREAMS_CONFLICT};
use crate::finding::{Finding, Spot};
use crate::name::ServiceName;
use crate::policy_upstream::{PolicyUpstream, PortReference};
use crate::proxy::{HostUpstream, Proxy, Upstream};
use crate::service::{Port, Service};
use crate::snapshot::Snapshot;

impl PortReference {
    /// Whether it means this port.
    pub fn matches(&self, port: &Port) -> bool {
        match self {
            Self::Number(number) => port.number == *number,
            Self::Name(name) => port.name == *name,
        }
    }
}

impl PolicyUpstream {
    /// The port to call; `None` unless the reference names exactly one port of `service`.
    pub fn port_of<'a>(&self, service: &'a Service) -> Option<&'a Port> {
        match (&self.port, service.ports.as_slice()) {
            (Some(reference), ports) => ports.iter().find(|port| reference.matches(port)),
            (None, [only]) => Some(only),
            (None, _) => None,
        }
    }
}

impl Service {
    /// The port that an upstream in node metadata leads to: by default the only one, or else port 80.
    pub fn upstream_port(&self, number: Option<u16>) -> Option<&Port> {
        match (number, self.ports.as_slice()) {
            (Some(number), _) => self.port(number),
            (None, [only]) => Some(only),
            (None, _) => self.port(80),
        }
    }
}

/// The place that declares an upstream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum UpstreamSource {
    /// A flag of the proxy's bootstrap.
    Flag,
    /// A service in policy.
    Policy {
        /// The service whose proxies have it.
        service: ServiceName,
        /// The location in policy.
        spot: Spot,
    },
}

impl UpstreamSource {
    /// The location in policy, if policy declares it.
    pub fn spot(&self) -> Option<&Spot> {
        match self {
            Self::Flag => None,
            Self::Policy { spot, .. } => Some(spot),
        }
    }
}

impl fmt::Display for UpstreamSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Flag => f.write_str("flag"),
            Self::Policy { service, spot } => write!(f, "policy of {service} ({spot})"),
        }
    }
}

/// An upstream that takes effect in a proxy.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProxyUpstream {
    /// The upstream.
    pub upstream: Upstream,
    /// The place that declares it.
    pub source: UpstreamSource,
}

/// The upstreams of a proxy.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ProxyUpstreams {
    /// Those of policy, in the order of the proxy's services, and then those of flags.
    pub services: Vec<ProxyUpstream>,
    /// The hosts outside the mesh, which only flags declare.
    pub hosts: Vec<HostUpstream>,
    /// The declarations that take no effect.
    pub findings: Vec<Finding>,
}

impl Snapshot {
    /// The upstreams of `proxy`: those of its services in policy, and those of its bootstrap at other local ports.
    pub fn upstreams_of(&self, proxy: &Proxy) -> ProxyUpstreams {
        let service = |name: &ServiceName| self.service(name).map(|service| &**service);
        let declared = |name: &ServiceName| service(name).map(|one| one.upstreams.as_slice());
        DeclaredUpstreams { service: &service, declared: &declared }.of(proxy)
    }
}

/// What decides the upstreams of proxies.
pub struct DeclaredUpstreams<'a> {
    /// A service of policy.
    pub service: &'a dyn Fn(&ServiceName) -> Option<&'a Service>,
    /// The upstreams of a service's proxies in policy.
    pub declared: &'a dyn Fn(&ServiceName) -> Option<&'a [PolicyUpstream]>,
}

impl fmt::Debug for DeclaredUpstreams<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("DeclaredUpstreams")
    }
}

impl DeclaredUpstreams<'_> {
    /// The upstreams of `proxy` ([`Snapshot::upstreams_of`]).
    pub fn of(&self, proxy: &Proxy) -> ProxyUpstreams {
        let mut upstreams = ProxyUpstreams::default();
        let mut by_port: BTreeMap<u16, (&ServiceName, &PolicyUpstream)> = BTreeMap::new();
        for name in &proxy.record.services {
            let declared = (self.declared)(name).unwrap_or_default();
            for upstream in declared {
                if let Some((by, first)) = by_port.get(&upstream.local_port) {
                    if !self.lead_to_one_port(first, upstream) {
                        let finding = conflict(proxy, (by, first), (name, upstream));
                        upstreams.findings.push(finding);
                    }
                    continue;
                }
                by_port.insert(upstream.local_port, (name, upstream));
                upstreams.services.push(ProxyUpstream {
                    upstream: self.resolved(upstream),
                    source: UpstreamSource::Policy {
                        service: name.clone(),
                        spot: upstream.spot.clone(),
                    },
                });
            }
        }
        for flag in &proxy.metadata.upstreams {
            match by_port.get(&flag.local_port) {
                None => upstreams
                    .services
                    .push(ProxyUpstream { upstream: flag.clone(), source: UpstreamSource::Flag }),
                Some((_, policy)) if self.is_same_target(flag, policy) => {}
                Some((by, policy)) => {
                    let target = match flag.port {
                        Some(port) => format!("{}:{port}", flag.service),
                        None => flag.service.to_string(),
                    };
                    upstreams.findings.push(overridden(proxy, &target, by, policy));
                }
            }
        }
        for flag in &proxy.metadata.hosts {
            match by_port.get(&flag.local_port) {
                None => upstreams.hosts.push(flag.clone()),
                Some((by, policy)) => {
                    upstreams.findings.push(overridden(proxy, &flag.authority(), by, policy));
                }
            }
        }
        upstreams
    }

    /// The upstream with the number of its port. Valid policy names a port; port 0 stands for any other, which the
    /// compiler reports.
    fn resolved(&self, upstream: &PolicyUpstream) -> Upstream {
        Upstream {
            service: upstream.service.clone(),
            port: Some(self.port_number(upstream).unwrap_or_default()),
            local_port: upstream.local_port,
        }
    }

    fn port_number(&self, upstream: &PolicyUpstream) -> Option<u16> {
        Some(upstream.port_of((self.service)(&upstream.service)?)?.number)
    }

    fn lead_to_one_port(&self, first: &PolicyUpstream, second: &PolicyUpstream) -> bool {
        first.service == second.service && self.port_number(first) == self.port_number(second)
    }

    fn is_same_target(&self, flag: &Upstream, policy: &PolicyUpstream) -> bool {
        let port =
            (self.service)(&flag.service).and_then(|service| service.upstream_port(flag.port));
        flag.service == policy.service && port.map(|port| port.number) == self.port_number(policy)
    }
}

/// The finding about two services of one proxy that declare one local port for different services.
fn conflict(
    proxy: &Proxy,
    (by, first): (&ServiceName, &PolicyUpstream),
    (name, second): (&ServiceName, &PolicyUpstream),
) -> Finding {
    let (id, port) = (proxy.record.display_name(), second.local_port);
    let message = format!(
        "local port {port} of proxy {id} is declared twice: `{first}` of service `{by}` and `{second}` of `{name}`"
    );
    Finding::error(UPSTREAMS_CONFLICT, Some(second.spot.clone()), message)
        .object(proxy.record.id)
        .label("takes no effect there")
        .related(first.spot.clone(), "takes effect: its service comes first in the proxy's record")
        .help("give one of them another `local_port`, or enroll a proxy for each service")
}

/// The finding about a flag whose local port policy uses for another target.
fn overridden(proxy: &Proxy, target: &str, by: &ServiceName, policy: &PolicyUpstream) -> Finding {
    let (id, port) = (proxy.record.display_name(), policy.local_port);
    let message = format!(
        "local port {port} of proxy {id}: policy of service `{by}` (`{policy}`) overrides the upstream `{target}` of its bootstrap"
    );
    Finding::warning(FLAG_OVERRIDDEN, Some(policy.spot.clone()), message)
        .object(proxy.record.id)
        .label("takes effect")
        .help("remove `--upstream` from the bootstrap, or give it another local port")
}

#[cfg(test)]
mod tests;
