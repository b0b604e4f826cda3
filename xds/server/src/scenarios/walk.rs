//! A walk: a client, a server and events in any order. Each step checks the rules, and the end
//! checks that the client has the published set. Chance (`convergence`) or a fuzzer chooses the
//! events.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint};
use ironmesh_xds_wire::{Resource, ResourceSet, Version};

use super::client::{Client, ENVOYS_ORDER, ResourceKey};
use super::dialect::Dialect;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{Contents, resource};

mod checks;

/// The names of resources.
pub(crate) const NAMES: [&str; 4] = ["a", "b", "c", "d"];

/// The names to which a client may subscribe.
pub(crate) const SUBSCRIBABLE: [&str; 5] = ["a", "b", "c", "d", "*"];

/// An event.
#[derive(Debug, Clone)]
pub(crate) enum Step {
    /// A resource is added, changed or removed; clusters always together with their endpoints.
    Edit(ResourceType, &'static str, Option<u32>),
    Publish,
    /// The client changes its subscriptions.
    Request {
        of: ResourceType,
        added: BTreeSet<&'static str>,
        dropped: BTreeSet<&'static str>,
    },
    /// The client ACKs the oldest push of the type, or NACKs it if it contains poison; it then
    /// applies the good part, or nothing.
    Answer {
        of: ResourceType,
        in_part: bool,
    },
    /// The client loses the stream. It sends `before_set` of its requests on the new one before the
    /// set is published. The server is the same, or another.
    Reconnect {
        before_set: usize,
        elsewhere: bool,
    },
    Pass(Duration),
}

/// The content that the client NACKs.
const POISON: u32 = 4;

fn is_poison(one: &Resource) -> bool {
    one.version() == poison_of(one.resource_type(), one.name())
}

fn poison_of(of: ResourceType, name: &str) -> Version {
    resource(of, name, POISON).version()
}

/// A walking client with its server.
pub(crate) struct Walk<V: Dialect> {
    client: Client<V>,
    contents: Contents,
    published: ResourceSet,
    /// The resources that the stream has delivered, or that the client had before.
    delivered: BTreeMap<ResourceKey, Arc<Resource>>,
    /// The names that may be delivered once more.
    repeatable: BTreeSet<ResourceKey>,
    /// Clusters whose endpoints must follow.
    awaiting_endpoints: BTreeSet<Arc<str>>,
    /// The clusters ACKed on this stream.
    acked_clusters: BTreeSet<Arc<str>>,
    /// The types with a NACK since their last ACK.
    in_bisection: BTreeSet<ResourceType>,
    was_late: bool,
}

impl<V: Dialect> Walk<V> {
    pub(crate) fn new() -> Self {
        let mut client = Client::new();
        client.publish(&ResourceSet::default());
        Self {
            client,
            contents: Contents::default(),
            published: ResourceSet::default(),
            delivered: BTreeMap::new(),
            repeatable: BTreeSet::new(),
            awaiting_endpoints: BTreeSet::new(),
            acked_clusters: BTreeSet::new(),
            in_bisection: BTreeSet::new(),
            was_late: false,
        }
    }

    /// Applies an event.
    pub(crate) fn apply(&mut self, step: &Step) {
        match step {
            Step::Edit(of, name, content) => self.contents.edit(*of, name, *content),
            Step::Publish => self.publish(),
            Step::Request { of, added, dropped } => {
                // In the state of the world, a name is dropped by omission.
                let is_explicit = |name: &&&str| V::either(true, !added.contains(*name));
                let dropped: Vec<_> = dropped.iter().filter(is_explicit).copied().collect();
                let added: Vec<_> = added.iter().copied().collect();
                self.request(*of, &added, &dropped);
            }
            Step::Answer { of, in_part } => self.answer(*of, *in_part),
            Step::Reconnect { before_set, elsewhere } => self.reconnect(*before_set, *elsewhere),
            Step::Pass(time) => {
                // A server without replies for minutes forgets its pushes.
                while self.client.open.len() > 6 {
                    self.answer(self.client.open[0].of, false);
                }
                self.client.pass(*time);
            }
        }
        self.check();
    }

    fn publish(&mut self) {
        self.published = self.contents.set();
        self.client.publish(&self.published);
    }

    fn request(&mut self, of: ResourceType, added: &[&'static str], dropped: &[&'static str]) {
        // A name that is dropped explicitly may return by the wildcard.
        self.repeatable.extend(added.iter().chain(dropped).map(|&name| (of, name.into())));
        if V::either(true, false)
            && let Some(wanted) = self.client.wanted.get_mut(&of)
        {
            // A name in both lists is dropped first.
            wanted.unsubscribe(of, dropped);
            self.forget();
        }
        self.client.change(of, added, dropped);
        if V::either(false, true) {
            // The request may be a repeated one, which requests again (R15).
            let delivered = self.delivered.keys().filter(|(delivered, _)| *delivered == of);
            self.repeatable.extend(delivered.cloned());
        }
        self.forget();
    }

    /// Forgets what the client is not subscribed to any more.
    fn forget(&mut self) {
        let client = &self.client;
        self.delivered.retain(|(of, name), _| client.covers(*of, name));
        self.awaiting_endpoints.retain(|name| client.covers(Endpoint, name));
        self.acked_clusters.retain(|name| client.covers(Cluster, name));
    }

    fn answer(&mut self, of: ResourceType, in_part: bool) {
        let Some(push) = self.client.open.iter().find(|push| push.of == of).cloned() else {
            return;
        };
        let names = push.resources.iter().map(|resource| Arc::clone(resource.name()));
        if push.resources.iter().any(|resource| is_poison(resource)) {
            self.in_bisection.insert(of);
            self.repeatable.extend(names.chain(push.removed).map(|name| (of, name)));
            if in_part {
                self.client.nack_in_part(of, is_poison);
            } else {
                self.client.nack(of, "poison");
            }
        } else {
            self.in_bisection.remove(&of);
            if of == Cluster {
                self.acked_clusters.retain(|name| !push.removes(name));
                self.acked_clusters.extend(names);
            }
            self.client.ack(of);
        }
        self.forget();
    }

    fn reconnect(&mut self, before_set: usize, elsewhere: bool) {
        // In the state of the world, a server without knowledge of a NACK cannot know what the
        // client applied of that push.
        if elsewhere && V::either(true, self.in_bisection.is_empty()) {
            self.client.reconnect_elsewhere();
        } else {
            self.client.reconnect();
        }
        self.repeatable.clear();
        self.awaiting_endpoints.clear();
        self.acked_clusters.clear();
        self.was_late = false;
        self.delivered.clone_from(&self.client.has);
        // For types whose responses are partial, one version says too little.
        self.delivered.retain(|(of, _), _| V::either(true, of.allows_wildcard()));
        for (at, of) in ENVOYS_ORDER.into_iter().enumerate() {
            if at == before_set {
                self.client.publish(&self.published);
            }
            let Some(wanted) = self.client.wanted.get(&of) else { continue };
            if wanted.is_nothing() {
                // An empty request would subscribe to all. A client without subscriptions has no
                // version.
                self.client.wanted.remove(&of);
                self.client.versions.remove(&of);
                continue;
            }
            let names = wanted.names.iter().map(|name| (of, name.as_str().into()));
            self.repeatable.extend(names.filter(|key| !self.client.has.contains_key(key)));
            self.client.resume(of);
        }
        if before_set >= ENVOYS_ORDER.len() {
            self.client.publish(&self.published);
        }
    }

    /// Publishes and ACKs everything: then the client has the published set.
    pub(crate) fn end(&mut self) {
        self.settle();
        self.check_end();
    }

    fn settle(&mut self) {
        self.publish();
        self.check();
        for wait in [Duration::ZERO, REMOVAL_GRACE] {
            self.client.pass(wait);
            self.check();
            for _ in 0..1000 {
                let Some(push) = self.client.open.first() else { break };
                self.answer(push.of, false);
                self.check();
            }
            assert!(self.client.open.is_empty(), "pushes without end: {:?}", self.client.open);
        }
    }
}
