//! Random egress policy of a small mesh.

use ironmesh_catalog::{
    Egress, EgressMode, EgressPort, EgressProtocol, HostUpstream, Hostname, SplitMatch,
};
use proptest::collection::vec;
use proptest::option;
use proptest::prelude::*;

use super::{ACCOUNTS, GROUPS, MATCHES, NAMESPACES, account, name, spot};

/// The hosts of egresses; one could also be a name of the mesh.
const HOSTS: [&str; 4] = ["api.example.com", "*.example.com", "db.example.com", "s2.n0"];

/// Local ports for hosts of some egresses, and for a host without one.
pub(super) fn upstreams() -> Vec<HostUpstream> {
    let all = [
        "api.example.com:80=16001",
        "a.example.com:80=16002",
        "10.1.2.3:80=16003",
        "none.example:80=16004",
        "api.example.com:80=16001",
    ];
    all.iter().map(|one| one.parse().unwrap()).collect()
}

/// All policy about calls outside the mesh.
#[derive(Debug, Clone, Default)]
pub(super) struct OutwardShape {
    pub(super) egresses: Vec<EgressShape>,
    /// The egress mode of each namespace; `None` is the mesh's.
    pub(super) namespaces: Vec<Option<EgressMode>>,
    pub(super) mesh: EgressMode,
}

#[derive(Debug, Clone)]
pub(super) struct EgressShape {
    pub(super) namespace: usize,
    /// Namespace and account.
    pub(super) source: (usize, usize),
    /// `None` is an address range.
    pub(super) host: Option<usize>,
    pub(super) protocol: EgressProtocol,
    pub(super) matches: Option<(usize, Option<Vec<usize>>)>,
}

impl OutwardShape {
    pub(super) fn egresses(&self) -> impl Iterator<Item = Egress> {
        self.egresses.iter().enumerate().map(|(n, shape)| shape.build(n))
    }

    /// The egress mode of a namespace.
    pub(super) fn of(&self, namespace: usize) -> Option<EgressMode> {
        self.namespaces.get(namespace).copied().flatten()
    }
}

impl EgressShape {
    fn build(&self, n: usize) -> Egress {
        let is_http = self.host.is_some() && self.protocol == EgressProtocol::Http;
        let named = |(group, matches): &(usize, Option<Vec<usize>>)| SplitMatch {
            group: name("g", *group),
            matches: matches.as_ref().map(|all| all.iter().map(|n| name("m", *n)).collect()),
            spot: spot(),
        };
        let hosts = self.host.map(|host| Hostname::new(HOSTS[host]).unwrap());
        let protocol = if is_http || self.protocol != EgressProtocol::Http {
            self.protocol
        } else {
            EgressProtocol::Tcp
        };
        Egress {
            namespace: name("n", self.namespace),
            name: name("e", n),
            sources: vec![account(self.source.0, self.source.1)],
            ip_addresses: if hosts.is_none() {
                vec!["10.0.0.0/8".parse().unwrap()]
            } else {
                vec![]
            },
            hosts: hosts.into_iter().collect(),
            ports: vec![EgressPort { number: 80, protocol }],
            matches: self.matches.iter().filter(|_| is_http).map(named).collect(),
            spot: spot(),
        }
    }
}

pub(super) fn outward() -> impl Strategy<Value = OutwardShape> {
    let protocol = (0..EgressProtocol::ALL.len()).prop_map(|n| EgressProtocol::ALL[n].1);
    let matches = option::of((0..=GROUPS, option::of(vec(0..=MATCHES, 0..3))));
    let source = (0..NAMESPACES, 0..ACCOUNTS);
    let egress = (0..NAMESPACES, source, option::of(0..HOSTS.len()), protocol, matches);
    let egress = egress.prop_map(|(namespace, source, host, protocol, matches)| EgressShape {
        namespace,
        source,
        host,
        protocol,
        matches,
    });
    let passes = || prop_oneof![3 => Just(EgressMode::Policy), 1 => Just(EgressMode::Passthrough)];
    let namespaces = vec(option::weighted(0.3, passes()), NAMESPACES);
    (vec(egress, 0..5), namespaces, passes())
        .prop_map(|(egresses, namespaces, mesh)| OutwardShape { egresses, namespaces, mesh })
}
