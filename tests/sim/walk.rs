//! Everything at once, at random: in the end all have what they are to have (R63, R64).

use std::collections::BTreeMap;

use ironmesh_xds_wire::ResourceType::{Cluster, Route};

use crate::chance::with_seeds;
use crate::contents::Contents;
use crate::mesh::{CONVERGENCE, Mesh};
use crate::proxy::Variant;
use crate::proxy::state::{BAD, some_refuse};

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
        walk.mesh.supply(&settled, CONVERGENCE);
        // What some refuse is mended.
        let number = walk.next_number();
        walk.contents.change_where(|number| number >= BAD, number);
        walk.publish();
        walk.mesh.converge();
    });
}

/// What is wrong between a proxy and a server.
#[derive(Debug, Clone, Copy)]
enum Fault {
    Partition,
    ToServer,
    ToProxy,
    Hold,
}

struct Walk {
    mesh: Mesh,
    contents: Contents,
    number: u32,
    faults: BTreeMap<(&'static str, &'static str), Fault>,
    /// The hosts that are down.
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
            let refuses = some_refuse(&mut mesh.chance);
            let pondering = *mesh.chance.choose(&[0, 10, 200]);
            mesh.proxy(proxy).state.borrow_mut().refuses = refuses;
            mesh.proxy(proxy).pondering.set(pondering);
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
        self.mesh.give_all(&self.contents.set());
    }

    fn step(&mut self) {
        match self.mesh.chance.below(12) {
            0..5 => {
                for _ in 0..=self.mesh.chance.below(3) {
                    self.edit();
                }
                self.publish();
            }
            5..7 => self.break_a_link(),
            7..9 => self.mend_a_link(),
            9 => self.crash(),
            10 => self.start_again(),
            _ => {}
        }
        let pause = match self.mesh.chance.below(8) {
            0 => 10_000,
            1..4 => 2_000,
            _ => 200,
        };
        let pause = self.mesh.chance.millis(0..pause);
        self.mesh.pass(pause);
        for (proxy, _) in PROXIES {
            // Whose server knows what it has by now.
            drop(self.mesh.agrees(proxy));
        }
    }

    /// Whether it may be that nothing can be sent of a type. One that refuses the state of the world from
    /// a server that does not know what it has keeps all of it as it is, until what is bad is mended.
    fn is_stuck(&self, (proxy, variant): (&str, Variant)) -> bool {
        let state = self.mesh.state(proxy);
        let set = self.contents.set();
        variant == Variant::Sotw
            && set.iter().any(|one| one.resource_type().allows_wildcard() && state.is_bad(one))
    }

    fn edit(&mut self) {
        let number = self.next_number();
        let service = *self.mesh.chance.choose(&SERVICES);
        match self.mesh.chance.below(6) {
            0 => self.contents.remove_service(service),
            1 => self.contents.add_service(service, number),
            2 => {
                let routes = self.contents.names(Route);
                let mut clusters = self.contents.names(Cluster);
                if routes.is_empty() {
                    return;
                }
                let route = (*self.mesh.chance.choose(&routes)).to_owned();
                let first = self.mesh.chance.below(clusters.len());
                clusters.rotate_left(first);
                clusters.truncate(1 + self.mesh.chance.below(clusters.len()));
                let clusters: Vec<_> = clusters.into_iter().map(str::to_owned).collect();
                let clusters: Vec<_> = clusters.iter().map(|name| &**name).collect();
                self.contents.route(&route, number, &clusters);
            }
            _ => {
                let keys = self.contents.keys();
                if keys.is_empty() {
                    return;
                }
                let (of, name) = self.mesh.chance.choose(&keys);
                let bad = if self.mesh.chance.once_in(5) { BAD } else { 0 };
                self.contents.change(*of, name, bad + number);
            }
        }
    }

    fn break_a_link(&mut self) {
        let (proxy, _) = *self.mesh.chance.choose(&PROXIES);
        let server = *self.mesh.chance.choose(&SERVERS);
        let faults = [Fault::Partition, Fault::ToServer, Fault::ToProxy, Fault::Hold];
        let fault = *self.mesh.chance.choose(&faults);
        if self.faults.contains_key(&(proxy, server)) {
            return;
        }
        self.faults.insert((proxy, server), fault);
        match fault {
            Fault::Partition => self.mesh.sim.partition(proxy, server),
            Fault::ToServer => self.mesh.sim.partition_oneway(proxy, server),
            Fault::ToProxy => self.mesh.sim.partition_oneway(server, proxy),
            Fault::Hold => self.mesh.sim.hold(proxy, server),
        }
    }

    fn mend_a_link(&mut self) {
        let broken: Vec<_> = self.faults.keys().copied().collect();
        if broken.is_empty() {
            return;
        }
        let (proxy, server) = *self.mesh.chance.choose(&broken);
        match self.faults.remove(&(proxy, server)).unwrap() {
            Fault::Partition => self.mesh.sim.repair(proxy, server),
            Fault::ToServer => self.mesh.sim.repair_oneway(proxy, server),
            Fault::ToProxy => self.mesh.sim.repair_oneway(server, proxy),
            Fault::Hold => self.mesh.sim.release(proxy, server),
        }
    }

    fn crash(&mut self) {
        let proxies = PROXIES.into_iter().map(|(proxy, _)| proxy);
        let hosts: Vec<_> = SERVERS.into_iter().chain(proxies).collect();
        let host = *self.mesh.chance.choose(&hosts);
        if !self.down.contains(&host) {
            self.mesh.crash(host);
            self.down.push(host);
        }
    }

    fn start_again(&mut self) {
        if let Some(host) = self.down.pop() {
            self.mesh.start_again(host);
        }
    }

    /// All is well again.
    fn heal(&mut self) {
        while !self.faults.is_empty() {
            self.mend_a_link();
        }
        while !self.down.is_empty() {
            self.start_again();
        }
    }
}
