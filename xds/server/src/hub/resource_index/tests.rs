use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint};
use ironmesh_xds_wire::{ErrorDetail, Node, Resource};
use proptest::prelude::*;

use super::*;
use crate::hub::{ClientStatus, Connection, LiveStream, Reconnect};
use crate::simulated::SimulatedClient;
use crate::stream::{Acked, Nacked};
use crate::test_resources::{cluster, endpoints, set};

const CLIENTS: u8 = 3;
const TYPES: [ResourceType; 2] = [Cluster, Endpoint];
const NAMES: [&str; 4] = ["a", "b", "c", "d"];
const CONTENTS: u32 = 3;

/// The positions of a type and of a name, and a content.
type Content = (usize, usize, u32);

#[derive(Debug, Clone)]
enum Step {
    Connect {
        client: u8,
        reconnect: Reconnect,
        is_aggregated: bool,
    },
    Disconnect(usize),
    Publish {
        client: u8,
        content: Vec<Content>,
    },
    /// A stream ACKs all that is published of a type.
    AckAll {
        stream: usize,
        of: usize,
    },
    /// A stream ACKs changes and removals, with or without a map that it shares with the published set.
    Ack {
        stream: usize,
        of: usize,
        changes: Vec<(usize, Option<u32>)>,
        shares: bool,
    },
    Nack {
        stream: usize,
        content: Content,
    },
    ReportClusters(usize),
    Forget(u8),
    EndPass,
    Query {
        of: usize,
        name: usize,
    },
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let reconnect = prop_oneof![
        Just(Reconnect::Fresh),
        Just(Reconnect::PerhapsFresh),
        Just(Reconnect::Resumed),
        Just(Reconnect::ResumedWithClusters),
    ];
    let content = || (0..TYPES.len(), 0..NAMES.len(), 0..CONTENTS);
    let changes = prop::collection::vec((0..NAMES.len(), prop::option::of(0..CONTENTS)), 0..4);
    let (stream, client, of) = (0..6_usize, 0..CLIENTS, 0..TYPES.len());
    let step = prop_oneof![
        3 => (client.clone(), reconnect, any::<bool>()).prop_map(|(client, reconnect, is_aggregated)| {
            Step::Connect { client, reconnect, is_aggregated }
        }),
        2 => stream.clone().prop_map(Step::Disconnect),
        4 => (client.clone(), prop::collection::vec(content(), 0..8))
            .prop_map(|(client, content)| Step::Publish { client, content }),
        3 => (stream.clone(), of.clone()).prop_map(|(stream, of)| Step::AckAll { stream, of }),
        4 => (stream.clone(), of.clone(), changes, any::<bool>()).prop_map(
            |(stream, of, changes, shares)| Step::Ack { stream, of, changes, shares }
        ),
        1 => (stream.clone(), content()).prop_map(|(stream, content)| Step::Nack { stream, content }),
        1 => stream.prop_map(Step::ReportClusters),
        1 => client.prop_map(Step::Forget),
        1 => Just(Step::EndPass),
        6 => (of, 0..NAMES.len()).prop_map(|(of, name)| Step::Query { of, name }),
    ];
    prop::collection::vec(step, 0..60)
}

fn resource((of, name, content): Content) -> Arc<Resource> {
    let name = NAMES[name];
    if TYPES[of] == Cluster { cluster(name, content) } else { endpoints(name, content) }
}

fn key(client: u8) -> ClientKey {
    format!("client-{client}").into()
}

/// A hub, and the open streams of all clients.
#[derive(Default)]
struct Mesh {
    hub: Arc<Hub>,
    streams: Vec<Connection>,
}

impl Mesh {
    fn stream(&mut self, number: usize) -> Option<&mut Connection> {
        let count = self.streams.len().max(1);
        self.streams.get_mut(number % count)
    }

    fn take(&mut self, step: Step) {
        match step {
            Step::Connect { client, reconnect, is_aggregated } => {
                let live = LiveStream::begin(([127, 0, 0, 1], 1).into(), is_aggregated);
                let (node, limit) = (Node::default(), usize::MAX);
                let stream = self.hub.connect(key(client), node, reconnect, limit, live);
                self.streams.push(stream.unwrap());
            }
            Step::Disconnect(stream) => {
                if !self.streams.is_empty() {
                    self.streams.remove(stream % self.streams.len());
                }
            }
            Step::Publish { client, content } => {
                let mut set = ResourceSet::default();
                content.into_iter().map(resource).for_each(|one| set.insert(one));
                self.hub.publish(&key(client), set);
            }
            Step::AckAll { stream, of } => {
                let Some(stream) = self.stream(stream) else { return };
                let published = stream.sets.borrow().clone().unwrap_or_default();
                let ack = Acked { resource_type: TYPES[of], names: Vec::new() };
                stream.acked(&ack, Overlay::all_of(published.of(TYPES[of])));
            }
            Step::Ack { stream, of, changes, shares } => {
                let hub = Arc::clone(&self.hub);
                let Some(stream) = self.stream(stream) else { return };
                let status = hub.status_of(&stream.client).unwrap();
                let newest = status.acked.iter().rev().find(|((_, acked), _)| *acked == TYPES[of]);
                let mut acked = newest.map(|(_, acked)| acked.clone()).unwrap_or_default();
                for (name, content) in changes {
                    match content {
                        Some(content) => {
                            let version = resource((of, name, content)).version();
                            acked.insert(NAMES[name].into(), version);
                        }
                        None => {
                            acked.remove(NAMES[name]);
                        }
                    }
                }
                if shares && let Some(published) = &*stream.sets.borrow() {
                    acked.share(published.of(TYPES[of]));
                }
                stream.acked(&Acked { resource_type: TYPES[of], names: Vec::new() }, acked);
            }
            Step::Nack { stream, content } => {
                let Some(stream) = self.stream(stream) else { return };
                let resource = resource(content);
                stream.nacked(&Nacked {
                    resource_type: resource.resource_type(),
                    resources: vec![(Arc::clone(resource.name()), resource.version())],
                    error: ErrorDetail { code: 13, message: "no".to_owned() },
                    is_final: true,
                    keeps_earlier: true,
                });
            }
            Step::ReportClusters(stream) => {
                if let Some(stream) = self.stream(stream) {
                    stream.initial_versions_compared();
                }
            }
            Step::Forget(client) => self.hub.forget(&key(client)),
            Step::EndPass => {
                self.hub.take_changed();
            }
            Step::Query { of, name } => self.compare_answers(of, name),
        }
    }

    /// Compares the answers about a resource with those of a scan.
    fn compare_answers(&self, of: usize, name: usize) {
        let hub = &self.hub;
        let all = hub.status();
        let (type_of, text) = (TYPES[of], NAMES[name]);
        let may_have = |status: &ClientStatus| {
            let is_unreported = type_of == Cluster && status.unreported_clusters.is_some();
            let mut acked = status.acked.iter().filter(|((_, acked), _)| *acked == type_of);
            is_unreported || acked.any(|(_, acked)| acked.contains_key(text))
        };
        let holders: BTreeSet<_> =
            all.iter().filter(|(_, status)| may_have(status)).map(|(client, _)| client).collect();
        assert_eq!(hub.clients_that_may_have(type_of, text), holders.len());
        for client in (0..=CLIENTS).map(key) {
            assert_eq!(
                hub.other_client_may_have(type_of, text, &client),
                holders.iter().any(|holder| **holder != client),
                "except {client}"
            );
        }
        for content in 0..CONTENTS {
            let version = resource((of, name, content)).version();
            let has = |status: &ClientStatus| status.has(type_of, text, version);
            assert_eq!(
                hub.any_client_has(type_of, text, version),
                all.iter().any(|(_, status)| has(status))
            );
            let is_published = |client: &&ClientKey| {
                let set = hub.published(client);
                let resource = set.as_ref().and_then(|set| set.of(type_of).get(text));
                hub.streams(client) > 0 && resource.is_some_and(|one| one.version() == version)
            };
            let clients: Vec<_> = all.iter().map(|(client, _)| client).collect();
            for except in [&[][..], &clients[..clients.len() / 2], &clients] {
                let except: BTreeSet<_> = except.iter().copied().collect();
                let mut others = clients.iter().filter(|client| !except.contains(*client));
                assert_eq!(
                    hub.is_published_to_others(type_of, text, version, &except),
                    others.any(is_published),
                    "except {except:?}"
                );
            }
        }
    }

    /// Verifies that all counts are those of a scan, without a query.
    fn verify_counts(&self) {
        let clients = self.hub.clients.lock();
        for (of, entries) in &clients.index.0 {
            assert!(!entries.is_empty());
            for (name, entry) in entries.iter().collect::<BTreeMap<_, _>>() {
                let all = clients.by_key.values().map(|client| Holding::of(client, *of, name));
                let scanned: Entry = all.collect();
                assert_eq!(
                    (&entry.acked, entry.may_have, &entry.published),
                    (&scanned.acked, scanned.may_have, &scanned.published),
                    "{of} {name}"
                );
            }
        }
    }
}

proptest! {
    /// For any actions of clients, and any time of the query.
    #[test]
    fn answers_equal_those_of_a_scan(steps in steps()) {
        let mut mesh = Mesh::default();
        for step in steps {
            mesh.take(step);
            mesh.verify_counts();
        }
        for of in 0..TYPES.len() {
            for name in 0..NAMES.len() {
                mesh.compare_answers(of, name);
            }
        }
    }
}

/// A hub with three clients that have ACKed a cluster.
fn settled() -> (Arc<Hub>, [SimulatedClient; 3]) {
    let hub = Arc::<Hub>::default();
    let clients = ["x", "y", "z"].map(|client| {
        let mut stream = SimulatedClient::connect(&hub, client, Node::default());
        hub.publish(client, set([cluster("a", 1), cluster("b", 1)]));
        stream.ack_all();
        stream
    });
    (hub, clients)
}

#[test]
fn changes_examine_no_client_without_a_query() {
    let (hub, mut clients) = settled();
    for client in ["x", "y", "z"] {
        hub.publish(client, set([cluster("a", 2)]));
    }
    clients.iter_mut().for_each(SimulatedClient::ack_all);
    drop(clients);
    assert_eq!(hub.counters().clients_examined(), 0);
}

#[test]
fn repeated_query_examines_no_client() {
    let (hub, mut clients) = settled();
    let examined = |step: &mut dyn FnMut()| {
        let before = hub.counters().clients_examined();
        step();
        hub.counters().clients_examined() - before
    };
    let may_have = |count| assert_eq!(hub.clients_that_may_have(Cluster, "a"), count);
    assert_eq!(examined(&mut || may_have(3)), 3);
    assert_eq!(examined(&mut || may_have(3)), 0);
    // Only what concerns the cluster is counted anew: its removal, and the ACK of that.
    assert_eq!(examined(&mut || hub.publish("x", set([cluster("a", 1), cluster("b", 2)]))), 0);
    assert_eq!(examined(&mut || clients[0].ack_all()), 0);
    assert_eq!(examined(&mut || hub.publish("x", set([cluster("b", 2)]))), 1);
    assert_eq!(examined(&mut || clients[0].ack_all()), 1);
    assert_eq!(examined(&mut || may_have(2)), 0);
}

#[test]
fn entry_is_dropped_after_a_pass_without_a_query() {
    let (hub, _clients) = settled();
    let scans = || {
        let before = hub.counters().clients_examined();
        assert_eq!(hub.clients_that_may_have(Cluster, "a"), 3);
        hub.counters().clients_examined() > before
    };
    assert!(scans());
    for _ in 0..3 {
        hub.take_changed();
        assert!(!scans(), "it is queried in every pass");
    }
    hub.take_changed();
    hub.take_changed();
    assert!(hub.clients.lock().index.0.is_empty());
    assert!(scans());
}
