//! Warming: Envoy ACKs a push of clusters only after it has received the endpoints of each (rule 1,
//! rule 10). Neither side may ever wait for the other forever.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::sync::Arc;

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route};
use proptest::collection::vec;
use proptest::prelude::*;
use proptest::sample::select;

use super::client::Client;
use super::dialect::{Dialect, Push};
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::Contents;

in_both_variants! {
    cluster_warming_never_deadlocks_client_and_server,
}

/// Rule 1, rule 10, R64.
fn cluster_warming_never_deadlocks_client_and_server<V: Dialect>() {
    proptest!(|(steps in vec(step(), 1..80))| {
        let mut envoy = Envoy::<V>::default_connected();
        for step in &steps {
            envoy.apply(step);
        }
        envoy.settle();
    });
}

#[derive(Debug, Clone)]
enum Step {
    /// Clusters with their endpoints, listeners or routes are added, changed or removed.
    Edit(ResourceType, &'static str, Option<u32>),
    Publish,
    /// The client reads the next response.
    Read,
    /// The client loses the stream. It sends `before_set` of its requests on the new one before the
    /// set is published. The server is the same, or another.
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

struct Envoy<V: Dialect> {
    client: Client<V>,
    contents: Contents,
    published: ResourceSet,
    /// Responses that the client has not read yet.
    unread: VecDeque<Push>,
    /// The clusters to whose endpoints it is subscribed.
    subscribed: BTreeSet<Arc<str>>,
    /// The clusters that are not warm yet, of the push that it has read and not ACKed.
    warming: Option<BTreeSet<Arc<str>>>,
    has_requested_listeners: bool,
}

impl<V: Dialect> Envoy<V> {
    fn default_connected() -> Self {
        let mut envoy = Self {
            client: Client::new(),
            contents: Contents::default(),
            published: ResourceSet::default(),
            unread: VecDeque::new(),
            subscribed: BTreeSet::new(),
            warming: None,
            has_requested_listeners: false,
        };
        envoy.client.publish(&ResourceSet::default());
        envoy.client.subscribe(Cluster, &[]);
        envoy
    }

    fn apply(&mut self, step: &Step) {
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
        self.client.publish(&self.published);
    }

    /// Queues what the server has sent.
    fn receive(&mut self) {
        self.unread.extend(std::mem::take(&mut self.client.log));
    }

    fn read(&mut self) {
        let Some(push) = self.unread.pop_front() else { return };
        match push.of {
            Cluster => {
                assert_eq!(self.warming, None, "one push at a time");
                let changed: BTreeSet<_> = push.news.iter().map(|r| Arc::clone(r.name())).collect();
                self.follow(&changed, |name| push.removes(name));
                self.warming = Some(changed);
            }
            Endpoint => {
                let names = push.resources.iter().map(|resource| resource.name());
                let names: BTreeSet<_> = names.chain(&push.removed).collect();
                if let Some(warming) = &mut self.warming {
                    warming.retain(|name| !names.contains(name));
                }
                self.client.ack(Endpoint);
            }
            of => self.client.ack(of),
        }
        if self.warming.as_ref().is_some_and(BTreeSet::is_empty) {
            self.warming = None;
            self.client.ack(Cluster);
            if !self.has_requested_listeners {
                self.has_requested_listeners = true;
                self.client.subscribe(Listener, &[]);
                self.client.subscribe(Route, &["a", "b"]);
            }
        }
    }

    /// Subscribes to the endpoints of its clusters.
    fn follow(&mut self, changed: &BTreeSet<Arc<str>>, is_gone: impl Fn(&Arc<str>) -> bool) {
        let gone: Vec<_> = self.subscribed.iter().filter(|name| is_gone(name)).cloned().collect();
        self.subscribed.retain(|name| !gone.contains(name));
        let new: Vec<_> =
            changed.iter().filter(|name| self.subscribed.insert(Arc::clone(name))).collect();
        // A client that sends all its names each time requests again even if only the content of
        // clusters has changed (R15).
        let has_changed_names = !new.is_empty() || !gone.is_empty();
        if has_changed_names || V::either(false, !changed.is_empty()) {
            let new: Vec<_> = new.into_iter().map(|name| &**name).collect();
            let gone: Vec<_> = gone.iter().map(|name| &**name).collect();
            self.client.change(Endpoint, &new, &gone);
        }
    }

    fn reconnect(&mut self, before_set: usize, elsewhere: bool) {
        if elsewhere {
            self.client.reconnect_elsewhere();
        } else {
            self.client.reconnect();
        }
        self.unread.clear();
        self.warming = None;
        let mut types = vec![Cluster];
        types.extend((!self.subscribed.is_empty()).then_some(Endpoint));
        types.extend([Listener, Route].into_iter().filter(|_| self.has_requested_listeners));
        for (at, of) in types.iter().enumerate() {
            if at == before_set {
                self.client.publish(&self.published);
            }
            self.client.resume(*of);
        }
        if before_set >= types.len() {
            self.client.publish(&self.published);
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
        assert!(!self.client.take_pushes().iter().any(|line| line.ends_with("late")));
        let is_wanted = |of, name: &str| match of {
            Endpoint => self.subscribed.contains(name),
            Route => ["a", "b"].contains(&name),
            _ => true,
        };
        let wanted: BTreeMap<_, _> = self
            .published
            .iter()
            .filter(|resource| is_wanted(resource.resource_type(), resource.name()))
            .map(|r| ((r.resource_type(), Arc::clone(r.name())), Arc::clone(r)))
            .collect();
        // In the state of the world it may have kept endpoints and routes that are gone (R37).
        let may_keep = |of: ResourceType| V::either(false, !of.allows_wildcard());
        self.client.has.retain(|key, _| wanted.contains_key(key) || !may_keep(key.0));
        assert_eq!(self.client.has, wanted);
    }
}
