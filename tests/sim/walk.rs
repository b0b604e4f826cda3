//! All faults at random: in the end all proxies have their resource sets (R63, R64).

use std::collections::BTreeMap;

use ironmesh_xds_wire::ResourceType::{Cluster, Route};

use crate::contents::Contents;
use crate::mesh::{CONVERGENCE, Mesh};
use crate::proxy::Variant;
use crate::proxy::state::{BAD, random_nack_scope};
use crate::random::with_seeds;

const SERVERS: [&str; 2] = ["left", "right"];
const PROXIES: [(&str, Variant); 6] = [
    ("delta-1", Variant::Delta),
    ("delta-2", Variant::Delta),
    ("delta-3", Variant::Delta),
    ("sotw-1", Variant::Sotw),
    ("sotw-2", Variant::Sotw),
    ("sotw-3", Variant::Sotw),
];
const SERVICES: [&str; 5] = ["a", "b", "c", "d", "e"];
const STEPS: usize = 80;

/// R63, R64.
#[test]
fn random_walk_converges_to_the_published_sets() {
    with_seeds(6, |seed| {
        let mut walk = Walk::new(seed);
        for _ in 0..STEPS {
            walk.step();
        }
        walk.heal();
        let settled: Vec<_> = PROXIES.iter().filter(|proxy| !walk.is_stuck(**proxy)).collect();
        let settled: Vec<_> = settled.into_iter().map(|(proxy, _)| *proxy).collect();
        walk.mesh.converge_hosts(&settled, CONVERGENCE);
        // Bad content is fixed.
        let number = walk.next_number();
        walk.contents.change_where(|number| number >= BAD, number);
        walk.publish();
        walk.mesh.converge();
    });
}

/// A fault between a proxy and a server.
#[derive(Debug, Clone, Copy)]
enum LinkFault {
    Partition,
    ToServer,
    ToProxy,
    Hold,
}

struct Walk {
    mesh: Mesh,
    contents: Contents,
    number: u32,
    faults: BTreeMap<(&'static str, &'static str), LinkFault>,
    /// The crashed hosts.
    down: Vec<&'static str>,
}

impl Walk {
    fn new(seed: u64) -> Self {
        let mut mesh = Mesh::new(seed);
        for server in SERVERS {
            mesh.start_server(server);
        }
        for (at, (proxy, variant)) in PROXIES.into_iter().enumerate() {
            let mut servers = SERVERS;
            servers.rotate_left(at % 2);
            mesh.start_proxy(proxy, variant, &servers);
            let nack_scope = random_nack_scope(&mut mesh.random);
            let max_delay_ms = *mesh.random.choose(&[0, 10, 200]);
            mesh.proxy(proxy).state.borrow_mut().nack_scope = nack_scope;
            mesh.proxy(proxy).max_delay_ms.set(max_delay_ms);
        }
        let contents = Contents::of_services(&SERVICES[..3]);
        let (faults, down) = (BTreeMap::new(), Vec::new());
        let walk = Self { mesh, contents, number: 1, faults, down };
        walk.publish();
        walk
    }

    fn next_number(&mut self) -> u32 {
        self.number += 1;
        self.number
    }

    fn publish(&self) {
        self.mesh.publish_to_all(&self.contents.set());
    }

    fn step(&mut self) {
        match self.mesh.random.below(12) {
            0..5 => {
                for _ in 0..=self.mesh.random.below(3) {
                    self.edit();
                }
                self.publish();
            }
            5..7 => self.break_link(),
            7..9 => self.repair_link(),
            9 => self.crash(),
            10 => self.restart(),
            _ => {}
        }
        let pause = match self.mesh.random.below(8) {
            0 => 10_000,
            1..4 => 2_000,
            _ => 200,
        };
        let pause = self.mesh.random.millis(0..pause);
        self.mesh.advance(pause);
        for (proxy, _) in PROXIES {
            // The server may know its state by now.
            drop(self.mesh.check_sync(proxy));
        }
    }

    /// Whether a type cannot be updated. A state-of-the-world proxy that NACKs, at a server that
    /// does not know its state, keeps all its resources until the bad content is fixed.
    fn is_stuck(&self, (proxy, variant): (&str, Variant)) -> bool {
        let state = self.mesh.state(proxy);
        let set = self.contents.set();
        variant == Variant::Sotw
            && set.iter().any(|one| one.resource_type().allows_wildcard() && state.is_bad(one))
    }

    fn edit(&mut self) {
        let number = self.next_number();
        let service = *self.mesh.random.choose(&SERVICES);
        match self.mesh.random.below(6) {
            0 => self.contents.remove_service(service),
            1 => self.contents.add_service(service, number),
            2 => {
                let routes = self.contents.names(Route);
                let mut clusters = self.contents.names(Cluster);
                if routes.is_empty() {
                    return;
                }
                let route = (*self.mesh.random.choose(&routes)).to_owned();
                let first = self.mesh.random.below(clusters.len());
                clusters.rotate_left(first);
                clusters.truncate(1 + self.mesh.random.below(clusters.len()));
                let clusters: Vec<_> = clusters.into_iter().map(str::to_owned).collect();
                let clusters: Vec<_> = clusters.iter().map(|name| &**name).collect();
                self.contents.route(&route, number, &clusters);
            }
            _ => {
                let keys = self.contents.keys();
                if keys.is_empty() {
                    return;
                }
                let (of, name) = self.mesh.random.choose(&keys);
                let bad = if self.mesh.random.once_in(5) { BAD } else { 0 };
                self.contents.change(*of, name, bad + number);
            }
        }
    }

    fn break_link(&mut self) {
        let (proxy, _) = *self.mesh.random.choose(&PROXIES);
        let server = *self.mesh.random.choose(&SERVERS);
        let faults =
            [LinkFault::Partition, LinkFault::ToServer, LinkFault::ToProxy, LinkFault::Hold];
        let fault = *self.mesh.random.choose(&faults);
        if self.faults.contains_key(&(proxy, server)) {
            return;
        }
        self.faults.insert((proxy, server), fault);
        match fault {
            LinkFault::Partition => self.mesh.sim.partition(proxy, server),
            LinkFault::ToServer => self.mesh.sim.partition_oneway(proxy, server),
            LinkFault::ToProxy => self.mesh.sim.partition_oneway(server, proxy),
            LinkFault::Hold => self.mesh.sim.hold(proxy, server),
        }
    }

    fn repair_link(&mut self) {
        let broken: Vec<_> = self.faults.keys().copied().collect();
        if broken.is_empty() {
            return;
        }
        let (proxy, server) = *self.mesh.random.choose(&broken);
        match self.faults.remove(&(proxy, server)).unwrap() {
            LinkFault::Partition => self.mesh.sim.repair(proxy, server),
            LinkFault::ToServer => self.mesh.sim.repair_oneway(proxy, server),
            LinkFault::ToProxy => self.mesh.sim.repair_oneway(server, proxy),
            LinkFault::Hold => self.mesh.sim.release(proxy, server),
        }
    }

    fn crash(&mut self) {
        let proxies = PROXIES.into_iter().map(|(proxy, _)| proxy);
        let hosts: Vec<_> = SERVERS.into_iter().chain(proxies).collect();
        let host = *self.mesh.random.choose(&hosts);
        if !self.down.contains(&host) {
            self.mesh.crash(host);
            self.down.push(host);
        }
    }

    fn restart(&mut self) {
        if let Some(host) = self.down.pop() {
            self.mesh.restart(host);
        }
    }

    /// Repairs all faults.
    fn heal(&mut self) {
        while !self.faults.is_empty() {
            self.repair_link();
        }
        while !self.down.is_empty() {
            self.restart();
        }
    }
}
