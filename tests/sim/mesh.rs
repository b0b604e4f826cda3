//! The simulated world of one scenario: servers, proxies, network and clock.

use std::cell::{Cell, RefCell};
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::ProxyId;
use ironmesh_tests::authority::TestAuthority;
use ironmesh_tests::xds::client_tls;
use ironmesh_xds_server::{ClientStatus, Hub};
use ironmesh_xds_wire::{ResourceSet, ResourceType};
use tokio::sync::watch;
use turmoil::Sim;
use uuid::Uuid;

use crate::contents::key;
use crate::proxy::state::State;
use crate::proxy::{Proxy, Variant};
use crate::server::{Server, Sets};
use ironmesh_tests::random::SeededRandom;

/// The resolution of the clock and the network. Events on one host are exact to the millisecond.
const TICK: Duration = Duration::from_millis(10);

/// The number of ticks between two probes of an awaited state.
const TICKS_PER_PROBE: u32 = 5;

/// The time limit for convergence: a dead stream is cut after 50 s, and proxies retry within a
/// second.
pub(crate) const CONVERGENCE: Duration = Duration::from_secs(60);

pub(crate) struct Mesh {
    pub(crate) sim: Sim<'static>,
    pub(crate) random: SeededRandom,
    authority: TestAuthority,
    sets: Rc<watch::Sender<Sets>>,
    servers: BTreeMap<&'static str, Server>,
    proxies: BTreeMap<&'static str, Proxy>,
}

impl Mesh {
    /// A world with this seed and latencies of up to 50 ms.
    pub(crate) fn new(seed: u64) -> Self {
        Self::with_latency(seed, Duration::from_millis(50))
    }

    pub(crate) fn with_latency(seed: u64, latency: Duration) -> Self {
        let sim = turmoil::Builder::new()
            .rng_seed(seed)
            .tick_duration(TICK)
            .min_message_latency(Duration::from_millis(1))
            .max_message_latency(latency)
            .simulation_duration(Duration::from_secs(86_400))
            .tcp_capacity(1024)
            .enable_random_order()
            .build();
        Self {
            sim,
            random: SeededRandom::new(seed),
            authority: TestAuthority::new(),
            sets: Rc::new(watch::Sender::default()),
            servers: BTreeMap::new(),
            proxies: BTreeMap::new(),
        }
    }

    pub(crate) fn start_server(&mut self, host: &'static str) {
        let server = Server {
            tls: self.authority.server_config(),
            sets: Rc::clone(&self.sets),
            hub: Rc::default(),
        };
        self.servers.insert(host, server.clone());
        self.sim.host(host, move || server.clone().run());
    }

    /// Starts a proxy, whose resource set is empty at first.
    pub(crate) fn start_proxy(
        &mut self,
        host: &'static str,
        variant: Variant,
        servers: &[&'static str],
    ) {
        let number = u128::try_from(self.proxies.len() + 1).unwrap();
        let identity = self.authority.issue(ProxyId(Uuid::from_u128(number)));
        let roots = self.authority.roots_pem();
        let proxy = Proxy {
            id: identity.name(),
            variant,
            servers: servers.to_vec(),
            tls: client_tls(&identity.chain, &identity.key, &roots).unwrap(),
            state: Rc::new(RefCell::new(State::of(variant))),
            reads: Rc::new(watch::Sender::new(true)),
            max_delay_ms: Rc::new(Cell::new(0)),
            random: Rc::new(RefCell::new(self.random.split())),
        };
        self.sets.send_modify(|sets| drop(sets.insert(proxy.id.clone(), ResourceSet::default())));
        self.proxies.insert(host, proxy.clone());
        self.sim.host(host, move || proxy.clone().run());
    }

    /// A mesh of one server and two proxies of one variant, `near` and `away`, with `set`.
    pub(crate) fn of_two(seed: u64, variant: Variant, set: &ResourceSet) -> Self {
        let mut mesh = Self::new(seed);
        mesh.start_server("server");
        mesh.start_proxy("near", variant, &["server"]);
        mesh.start_proxy("away", variant, &["server"]);
        mesh.publish_to_all(set);
        mesh.converge();
        mesh
    }

    pub(crate) fn proxy(&self, host: &str) -> &Proxy {
        &self.proxies[host]
    }

    pub(crate) fn state(&self, host: &str) -> std::cell::Ref<'_, State> {
        self.proxies[host].state.borrow()
    }

    pub(crate) fn hub(&self, server: &str) -> Arc<Hub> {
        Arc::clone(&self.servers[server].hub.borrow())
    }

    /// A server's status of a proxy.
    pub(crate) fn status(&self, server: &str, proxy: &str) -> ClientStatus {
        self.hub(server).status_of(&self.proxies[proxy].id).unwrap_or_default()
    }

    /// The number of responses by type since the server's start.
    pub(crate) fn pushes(&self, server: &str) -> Vec<(ResourceType, u64)> {
        let hub = self.hub(server);
        let pushes = ResourceType::ALL.into_iter().map(|of| (of, hub.counters().pushes(of)));
        pushes.filter(|(_, pushes)| *pushes > 0).collect()
    }

    /// Publishes `set` to every proxy.
    pub(crate) fn publish_to_all(&self, set: &ResourceSet) {
        self.sets.send_modify(|sets| sets.values_mut().for_each(|one| *one = set.clone()));
    }

    /// Clears the logs of all proxies.
    pub(crate) fn forget_logs(&self) {
        for proxy in self.proxies.values() {
            proxy.state.borrow_mut().log.clear();
        }
    }

    /// Crashes a server or a proxy. The network sees it, if it is connected.
    pub(crate) fn crash(&mut self, host: &str) {
        self.sim.crash(host);
        if let Some(proxy) = self.proxies.get(host) {
            proxy.state.borrow_mut().begin();
        } else {
            let proxies = self.proxies.values();
            proxies.for_each(|proxy| proxy.state.borrow_mut().is_unknown_to_server = true);
        }
    }

    /// Restarts a crashed host, with empty state.
    pub(crate) fn restart(&mut self, host: &str) {
        self.sim.bounce(host);
    }

    fn step(&mut self) {
        self.sim.step().unwrap();
    }

    /// Advances the clock.
    pub(crate) fn advance(&mut self, time: Duration) {
        let end = self.sim.elapsed() + time;
        while self.sim.elapsed() < end {
            self.step();
        }
    }

    /// Advances the clock until a condition holds, and returns the elapsed time. An `Err` describes
    /// what is missing.
    pub(crate) fn wait_until(
        &mut self,
        limit: Duration,
        what: &str,
        look: impl Fn(&Self) -> Result<(), String>,
    ) -> Duration {
        let begin = self.sim.elapsed();
        loop {
            let Err(missing) = look(self) else { return self.sim.elapsed() - begin };
            let waited = self.sim.elapsed() - begin;
            assert!(waited < limit, "waited {waited:?} for {what}; last seen: {missing}");
            self.advance(TICK * TICKS_PER_PROBE);
        }
    }

    /// Waits until every proxy has its resource set.
    pub(crate) fn converge(&mut self) -> Duration {
        self.converge_within(CONVERGENCE)
    }

    pub(crate) fn converge_within(&mut self, limit: Duration) -> Duration {
        self.wait_until(limit, "all to have what they are to have", |mesh| {
            mesh.proxies.keys().try_for_each(|host| mesh.check_sync(host))
        })
    }

    /// Waits until these proxies have their resource sets.
    pub(crate) fn converge_hosts(&mut self, hosts: &[&str], limit: Duration) -> Duration {
        self.wait_until(limit, "some to have what they are to have", |mesh| {
            hosts.iter().try_for_each(|host| mesh.check_sync(host))
        })
    }

    /// Checks that a proxy has its resource set and that its server knows; an `Err` describes what
    /// is missing.
    pub(crate) fn check_sync(&self, host: &str) -> Result<(), String> {
        let proxy = &self.proxies[host];
        self.compare(proxy).map_err(|missing| format!("{host} {missing}"))?;
        proxy.state.borrow_mut().confirmed();
        Ok(())
    }

    fn compare(&self, proxy: &Proxy) -> Result<(), String> {
        let state = proxy.state.borrow();
        let server = state.connected_to.ok_or_else(|| {
            format!("is not connected: {:?}", state.last_end.as_ref().map(tonic::Status::message))
        })?;
        let status = self.hub(server).status_of(&proxy.id).unwrap_or_default();
        if status.streams != 1 {
            return Err(format!("has {} streams at {server}", status.streams));
        }
        let sets = self.sets.borrow();
        let set = &sets[&proxy.id];
        let wants = BTreeMap::from(ResourceType::ALL.map(|of| (of, state.wants(of))));
        let mut nack_scope = 0;
        for resource in set.iter() {
            let (of, name) = (resource.resource_type(), resource.name());
            if !of.allows_wildcard() && !wants[&of].contains(&**name) {
                continue;
            }
            let key = key(resource);
            let has = state.has.get(&key).is_some_and(|has| has == resource);
            if state.is_bad(resource) {
                assert!(!has, "a NACKed version is active: {resource:?}");
                nack_scope += 1;
                let nack = status.nacks.get(&(of, Arc::clone(name)));
                if nack.map(|nack| nack.version) != Some(resource.version()) {
                    return Err(format!("NACKed {resource:?}, and {server} does not know"));
                }
            } else if !has {
                return Err(format!("lacks {resource:?}"));
            } else if !status.has(of, name, resource.version()) {
                return Err(format!("has {resource:?}, and {server} does not know"));
            }
        }
        if let Some((of, name)) = state.has.keys().find(|(of, name)| !set.contains(*of, name)) {
            return Err(format!("still has {of} {name}"));
        }
        // A proxy may have ACKed another version elsewhere, which this server does not know.
        let nacks = status.nacks.iter().filter(|((of, name), nack)| {
            set.of(*of).get(name).is_some_and(|resource| resource.version() == nack.version)
        });
        let nacks: Vec<_> = nacks.collect();
        if nacks.len() != nack_scope {
            return Err(format!("NACKed {nack_scope}; {server} has {nacks:?}"));
        }
        let is_bad = |name: &str| {
            let endpoints = set.of(ResourceType::Endpoint).get(name);
            endpoints.is_some_and(|endpoints| state.is_bad(endpoints))
        };
        match state.warming.iter().find(|name| !is_bad(name)) {
            Some(name) => Err(format!("waits for the endpoints of {name}")),
            None => Ok(()),
        }
    }
}
