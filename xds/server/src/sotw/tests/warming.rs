//! Envoy warms clusters: it answers a push of them only when it has been told the endpoints of each
//! (rule 1, rule 10). Whatever happens, it must never wait for us, nor we for it.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route};
use ironmesh_xds_wire::{ResourceSet, SotwResponse};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::client::Client;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::Contents;

proptest! {
    #[test]
    fn a_client_that_warms_its_clusters_never_waits(steps in vec(step(), 1..80)) {
        let mut envoy = Envoy::default_connected();
        for step in &steps {
            envoy.take(step);
        }
        envoy.settle();
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// Clusters with their endpoints, listeners or routes are added, changed or removed.
    Edit(ResourceType, &'static str, Option<u32>),
    Publish,
    /// The client reads the next message.
    Read,
    /// The stream is lost. Of the requests on the new one, so many come before the set. The server is
    /// the same, or another.
    Reconnect {
        before_set: usize,
        elsewhere: bool,
    },
}

fn step() -> impl Strategy<Value = Step> {
    let of = select(&[Cluster, Cluster, Endpoint, Endpoint, Listener, Route][..]);
    let edit = (of, select(&["a", "b", "c"][..]), prop::option::weighted(0.8, 0..5_u32));
    prop_oneof![
        6 => edit.prop_map(|(of, name, content)| Step::Edit(of, name, content)),
        4 => Just(Step::Publish),
        10 => Just(Step::Read),
        1 => (0..=4_usize, any::<bool>())
            .prop_map(|(before_set, elsewhere)| Step::Reconnect { before_set, elsewhere }),
    ]
}

struct Envoy {
    client: Client,
    contents: Contents,
    published: ResourceSet,
    /// What is on the way to it.
    unread: VecDeque<SotwResponse>,
    /// The clusters whose endpoints it is subscribed to.
    subscribed: BTreeSet<Arc<str>>,
    /// The clusters of the push that it has read and not taken, as long as they are not warm.
    warming: Option<BTreeSet<Arc<str>>>,
    has_asked_for_listeners: bool,
}

impl Envoy {
    fn default_connected() -> Self {
        let mut envoy = Self {
            client: Client::new(),
            contents: Contents::default(),
            published: ResourceSet::default(),
            unread: VecDeque::new(),
            subscribed: BTreeSet::new(),
            warming: None,
            has_asked_for_listeners: false,
        };
        envoy.client.give(&ResourceSet::default());
        envoy.client.ask(Cluster, &[]);
        envoy
    }

    fn take(&mut self, step: &Step) {
        match step {
            Step::Edit(of, name, content) => self.contents.edit(*of, name, *content),
            Step::Publish => self.publish(),
            Step::Read => self.read(),
            Step::Reconnect { before_set, elsewhere } => self.reconnect(*before_set, *elsewhere),
        }
        self.receive();
    }

    fn publish(&mut self) {
        self.published = self.contents.set();
        self.client.give(&self.published);
    }

    /// What the server has sent is on its way.
    fn receive(&mut self) {
        self.unread.extend(std::mem::take(&mut self.client.log));
    }

    fn read(&mut self) {
        let Some(response) = self.unread.pop_front() else { return };
        let names: BTreeSet<_> =
            response.resources.iter().map(|resource| Arc::clone(resource.name())).collect();
        match response.resource_type {
            Cluster => {
                assert_eq!(self.warming, None, "one push at a time");
                let is_new = |r: &&Arc<_>| {
                    let resource: &ironmesh_xds_wire::Resource = r;
                    let has = self.client.has.get(&(Cluster, Arc::clone(resource.name())));
                    has.is_none_or(|has| has.version() != resource.version())
                };
                let new = response.resources.iter().filter(is_new);
                let new: BTreeSet<_> = new.map(|resource| Arc::clone(resource.name())).collect();
                let is_same = self.subscribed == names;
                self.subscribed = names;
                // It asks again also where only the content of clusters has changed (R15).
                if !is_same || !new.is_empty() {
                    self.ask_for_endpoints();
                }
                self.warming = Some(new);
            }
            Endpoint => {
                if let Some(warming) = &mut self.warming {
                    warming.retain(|name| !names.contains(name));
                }
                self.client.take(Endpoint);
            }
            of => self.client.take(of),
        }
        if self.warming.as_ref().is_some_and(BTreeSet::is_empty) {
            self.warming = None;
            self.client.take(Cluster);
            if !self.has_asked_for_listeners {
                self.has_asked_for_listeners = true;
                self.client.ask(Listener, &[]);
                self.client.ask(Route, &["a", "b"]);
            }
        }
    }

    fn ask_for_endpoints(&mut self) {
        let subscribed: Vec<_> = self.subscribed.iter().map(|name| &**name).collect();
        self.client.ask(Endpoint, &subscribed);
    }

    fn reconnect(&mut self, before_set: usize, elsewhere: bool) {
        if elsewhere {
            self.client.reconnect_elsewhere();
        } else {
            self.client.reconnect();
        }
        self.unread.clear();
        self.warming = None;
        let subscribed: Vec<_> = self.subscribed.iter().map(|name| &**name).collect();
        let mut requests = vec![(Cluster, &[][..])];
        if !subscribed.is_empty() {
            requests.push((Endpoint, &subscribed));
        }
        if self.has_asked_for_listeners {
            requests.extend([(Listener, &[][..]), (Route, &["a", "b"])]);
        }
        for (at, (of, names)) in requests.iter().enumerate() {
            if at == before_set {
                self.client.give(&self.published);
            }
            self.client.ask(*of, names);
        }
        if before_set >= requests.len() {
            self.client.give(&self.published);
        }
    }

    fn settle(&mut self) {
        self.publish();
        self.receive();
        for _ in 0..2 {
            for _ in 0..1000 {
                self.read();
                self.receive();
            }
            assert!(self.unread.is_empty(), "pushes without end: {:?}", self.unread);
            assert_eq!(self.warming, None, "it waits for endpoints");
            // Only for removals after a reconnect.
            self.client.pass(REMOVAL_GRACE);
            self.receive();
        }
        assert!(!self.client.saw().iter().any(|line| line.ends_with("late")));
        let is_wanted = |of, name: &str| match of {
            Endpoint => self.subscribed.contains(name),
            Route => ["a", "b"].contains(&name),
            _ => true,
        };
        let wanted: BTreeMap<_, _> = self
            .published
            .iter()
            .filter(|resource| is_wanted(resource.resource_type(), resource.name()))
            .map(|resource| {
                ((resource.resource_type(), Arc::clone(resource.name())), Arc::clone(resource))
            })
            .collect();
        // Endpoints and routes that have gone it may have kept: that cannot be told.
        self.client.has.retain(|key, _| wanted.contains_key(key) || key.0.allows_wildcard());
        assert_eq!(self.client.has, wanted);
    }
}
