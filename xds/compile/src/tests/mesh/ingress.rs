//! Random ingress rules, to ports of all kinds, whose names and ports often collide.

use std::sync::Arc;

use ironmesh_catalog::{
    Hostname, IngressBackend, IngressEntry, IngressPort, IngressSource, Name, ServicePort,
    SplitMatch,
};
use proptest::option;
use proptest::prelude::*;

use super::{GROUPS, MATCHES, PORTS, SERVICES, Shape, name, spot};

/// The SNI names of ingress rules; some are the mesh's own.
const HOSTS: [&str; 3] = ["shop.example.com", "*.example.com", "80.s0.n0.mesh.internal"];

/// An ingress backend, in numbers.
#[derive(Debug, Clone)]
pub(super) struct IngressShape {
    service: usize,
    port: usize,
    entry: EntryShape,
    /// The service whose endpoints' addresses are the source; `None` is a range.
    from: Option<usize>,
    group: Option<(usize, Option<usize>)>,
}

#[derive(Debug, Clone)]
enum EntryShape {
    Http(u16),
    /// With or without a client certificate, and with or without addresses besides.
    Https(usize, bool, bool),
}

impl IngressShape {
    /// A plaintext rule for a service, for requests that the first group matches.
    pub(super) fn plain(service: usize, port: usize, at: u16) -> Self {
        let (entry, group) = (EntryShape::Http(at), Some((0, None)));
        Self { service, port, entry, from: None, group }
    }
}

pub(super) fn ingress() -> impl Strategy<Value = IngressShape> {
    let ports = prop_oneof![Just(15003), Just(15080), 8443..8445_u16];
    let https = (0..HOSTS.len(), any::<bool>(), any::<bool>());
    let entry = prop_oneof![
        ports.prop_map(EntryShape::Http),
        https.prop_map(|(host, asks, has_addresses)| EntryShape::Https(host, asks, has_addresses)),
    ];
    let group = option::of((0..=GROUPS, option::of(0..=MATCHES)));
    let shape = (0..=SERVICES, 0..PORTS.len(), entry, option::of(0..=SERVICES), group);
    shape.prop_map(|(service, port, entry, from, group)| IngressShape {
        service,
        port,
        entry,
        from,
        group,
    })
}

impl Shape {
    /// A service with two HTTP ports and one proxy, whose ingress rules use the same name.
    pub(in crate::tests) fn with_duplicate_ingress_host() -> Self {
        let mut shape = Self::fleet(0, true);
        let ports = vec![0, 2];
        let entry = EntryShape::Https(0, true, false);
        let rule =
            |port| IngressShape { service: 0, port, entry: entry.clone(), from: None, group: None };
        shape.ingress = ports.iter().map(|port| rule(*port)).collect();
        if let Some(service) = shape.services.first_mut() {
            service.ports = ports;
        }
        shape
    }

    /// The loader rejects two rules for one port and protocol: the first of each is kept.
    pub(super) fn ingress_backends(&self) -> Vec<((Name, Name), Arc<IngressBackend>)> {
        let mut seen = Vec::new();
        let mut all = Vec::new();
        for (n, shape) in self.ingress.iter().enumerate() {
            let service = self.service_name(shape.service);
            let port = ServicePort::new(service, PORTS[shape.port].0);
            let entry = match shape.entry {
                EntryShape::Http(port) => IngressEntry::Http { port },
                EntryShape::Https(host, asks, _) => IngressEntry::Https {
                    hosts: vec![Hostname::new(HOSTS[host]).unwrap()],
                    skips_client_certificates: !asks,
                },
            };
            let rule = (port.clone(), entry.protocol());
            if seen.contains(&rule) {
                continue;
            }
            seen.push(rule);
            let addresses = match shape.from {
                Some(service) => IngressSource::Service(self.service_name(service)),
                None => IngressSource::Range("10.0.0.0/30".parse().unwrap()),
            };
            let edge = IngressSource::Principal("spiffe://mesh.internal/ns/n0/sa/edge".into());
            let sources = match shape.entry {
                EntryShape::Https(_, true, false) => vec![edge],
                EntryShape::Https(_, true, true) => vec![edge, addresses],
                EntryShape::Http(_) | EntryShape::Https(_, false, _) => vec![addresses],
            };
            let matches = shape.group.map(|(group, one)| SplitMatch {
                group: name("g", group),
                matches: one.map(|one| vec![name("m", one)]),
                spot: spot(),
            });
            let namespace = port.service.namespace.clone();
            let policy = IngressBackend {
                namespace: namespace.clone(),
                name: name("in", n),
                backends: vec![IngressPort { port, entry, spot: spot() }],
                sources,
                matches: matches.into_iter().collect(),
                spot: spot(),
            };
            all.push(((namespace, name("in", n)), Arc::new(policy)));
        }
        all
    }
}
