//! Local ports of upstreams that do not work as declared: those that several proxies of one machine declare, and those
//! that another program holds. Reports them in findings; it changes no resource.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};

use foldhash::HashMap;
use ironmesh_catalog::codes::{LOCAL_PORT_HELD, LOCAL_PORT_SHARED};
use ironmesh_catalog::{Finding, Proxy, ProxyName, ProxyUpstream, UpstreamSource};
use ironmesh_xds_compile::names;
use ironmesh_xds_server::ClientKey;
use ironmesh_xds_wire::ResourceType;

use super::nack_tracker::{InactiveResources, is_local};

/// The local ports of the connected proxies.
#[derive(Debug, Default)]
pub(super) struct LocalPorts {
    declared: BTreeMap<LocalPort, BTreeMap<ClientKey, Declaration>>,
    by_client: HashMap<ClientKey, Vec<LocalPort>>,
    /// The ports that several proxies declare. Kept apart, so that the findings cost as much as they are.
    shared: BTreeSet<LocalPort>,
    held: BTreeMap<ClientKey, Vec<Finding>>,
    is_news: bool,
}

/// A local port of a machine, which its mesh address identifies.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
struct LocalPort {
    machine: IpAddr,
    listens_on: SocketAddr,
}

/// A proxy's upstream at a local port.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Declaration {
    proxy: ProxyName,
    upstream: ProxyUpstream,
}

impl LocalPorts {
    /// Replaces the upstreams of a client.
    pub(super) fn set(&mut self, client: &ClientKey, proxy: &Proxy, upstreams: &[ProxyUpstream]) {
        let name = proxy.record.display_name();
        let machine = proxy.record.mesh_address.ip();
        let declared: Vec<_> = upstreams
            .iter()
            .map(|upstream| {
                let port = upstream.upstream.local_port;
                let listens_on = SocketAddr::new(proxy.local_address(), port);
                let declaration = Declaration { proxy: name.clone(), upstream: upstream.clone() };
                (LocalPort { machine, listens_on }, declaration)
            })
            .collect();
        // Most compilations change nothing here.
        let known = self.by_client.get(client).map_or(&[][..], |known| known.as_slice());
        let is_same = |(port, declaration): &(LocalPort, Declaration)| {
            self.declared.get(port).and_then(|all| all.get(client)) == Some(declaration)
        };
        if known.len() == declared.len() && declared.iter().all(is_same) {
            return;
        }
        self.remove_declared(client);
        for (port, declaration) in declared {
            let all = self.declared.entry(port).or_default();
            all.insert(client.clone(), declaration);
            if all.len() > 1 {
                self.shared.insert(port);
                self.is_news = true;
            }
            self.by_client.entry(client.clone()).or_default().push(port);
        }
    }

    /// Forgets a client that has disconnected.
    pub(super) fn remove(&mut self, client: &str) {
        self.remove_declared(client);
        self.is_news |= self.held.remove(client).is_some();
    }

    fn remove_declared(&mut self, client: &str) {
        for port in self.by_client.remove(client).unwrap_or_default() {
            let Some(all) = self.declared.get_mut(&port) else { continue };
            all.remove(client);
            if all.len() < 2 {
                self.is_news |= self.shared.remove(&port);
            }
            if all.is_empty() {
                self.declared.remove(&port);
            }
        }
    }

    /// Replaces the findings about ports of a client that another program holds.
    pub(super) fn set_held(&mut self, client: &ClientKey, findings: Vec<Finding>) {
        let before = self.held.remove(client).unwrap_or_default();
        self.is_news |= before != findings;
        if !findings.is_empty() {
            self.held.insert(client.clone(), findings);
        }
    }

    /// Whether there are such findings about a client.
    pub(super) fn has_held(&self, client: &ClientKey) -> bool {
        self.held.contains_key(client)
    }

    /// Whether the findings differ from those at the last call.
    pub(super) fn take_news(&mut self) -> bool {
        std::mem::take(&mut self.is_news)
    }

    /// The findings about all these ports.
    pub(super) fn findings(&self) -> Vec<Finding> {
        let shared = self.shared.iter().filter_map(|port| {
            shared(*port, self.declared.get(port)?.values().collect::<Vec<_>>().as_slice())
        });
        shared.chain(self.held.values().flatten().cloned()).collect()
    }
}

/// The finding about a port that several proxies declare.
fn shared(port: LocalPort, declarations: &[&Declaration]) -> Option<Finding> {
    let [first, second, others @ ..] = declarations else { return None };
    let others = match others.len() {
        0 => String::new(),
        count => format!(" and {count} more"),
    };
    let LocalPort { machine, listens_on } = port;
    let message = format!(
        "proxies of machine {machine} have the same local port {listens_on}: {} and {}{others}",
        first.text(),
        second.text()
    );
    let finding =
        Finding::warning(LOCAL_PORT_SHARED, second.upstream.source.spot().cloned(), message);
    let related = first.upstream.source.spot();
    let finding = related.iter().fold(finding, |finding, spot| {
        finding.related((*spot).clone(), format!("of proxy {}", first.proxy))
    });
    Some(finding.help(
        "only one of them can listen there: give each proxy of a machine local ports of its own. Proxies in network namespaces of their own do not conflict",
    ))
}

impl Declaration {
    fn text(&self) -> String {
        let Self { proxy, upstream } = self;
        format!("{proxy} (`{}`, {})", upstream.upstream.service, upstream.source)
    }
}

/// The findings about upstreams of a proxy whose listeners it NACKs because it cannot bind the port.
pub(super) fn held_ports(
    proxy: &Proxy,
    upstreams: &[ProxyUpstream],
    inactive: &InactiveResources,
) -> Vec<Finding> {
    let nacked = inactive
        .nacked
        .iter()
        .filter(|nack| nack.resource_type == ResourceType::Listener && is_local(&nack.message));
    let of_upstream = nacked.filter_map(|nack| {
        let port = names::local_port_of_upstream(&nack.name)?;
        let upstream = upstreams.iter().find(|one| one.upstream.local_port == port)?;
        Some((upstream, &nack.message))
    });
    of_upstream.map(|(upstream, message)| held_port(proxy, upstream, message)).collect()
}

fn held_port(proxy: &Proxy, upstream: &ProxyUpstream, message: &str) -> Finding {
    let (name, service) = (proxy.record.display_name(), &upstream.upstream.service);
    let port = upstream.upstream.local_port;
    let address = SocketAddr::new(proxy.local_address(), port);
    let text = format!(
        "proxy {name} cannot listen on {address} for its upstream `{service}` ({}): {message}",
        upstream.source
    );
    let change = match upstream.source {
        UpstreamSource::Policy { .. } => "change `local_port` in policy",
        UpstreamSource::Flag => "change the port of `--upstream` in its bootstrap",
    };
    Finding::error(LOCAL_PORT_HELD, upstream.source.spot().cloned(), text)
        .object(proxy.record.id)
        .label("a program of the machine holds this port, or the port on all addresses")
        .help(format!(
            "on its machine, find the program with `ss -ltnp 'sport = :{port}'` and stop it, or {change}; the control plane sends the listener again within 5 minutes"
        ))
}
