use ironmesh_xds_wire::{ErrorDetail, SotwRequest};
use tokio::time::Instant;

use super::*;
use crate::overlay::Overlay;
use crate::sotw::{SotwOutput, SotwStream};
use crate::stream::{Acked, Nacked};
use crate::test_resources::{cluster, listener, set};

/// An aggregated stream from this machine.
fn here() -> LiveStream {
    LiveStream::begin(([127, 0, 0, 1], 1).into(), true)
}

fn connect(hub: &Arc<Hub>) -> Connection {
    hub.connect("client".into(), Node::default(), Reconnect::PerhapsFresh, usize::MAX, here())
        .unwrap()
}

fn acked(connection: &Connection, resources: &[(ResourceType, &str, Version)]) {
    for (resource_type, ..) in resources {
        let of_type = resources.iter().filter(|(of, ..)| of == resource_type);
        let acked = of_type.map(|(_, name, version)| (Arc::from(*name), *version)).collect();
        let ack = Acked { resource_type: *resource_type, names: Vec::new() };
        connection.acked(&ack, acked);
    }
}

#[test]
fn unchanged_node_of_a_client_is_stored_once() {
    let hub = Arc::new(Hub::default());
    let node = |id: &str| Node { id: id.to_owned(), ..Node::default() };
    let mut connections = Vec::new();
    let mut node_after_connect = |id: &str| {
        connections.push(
            hub.connect("client".into(), node(id), Reconnect::Fresh, usize::MAX, here()).unwrap(),
        );
        let change = hub.take_changed();
        let [(client, change)] = &change[..] else { panic!("{change:?}") };
        assert_eq!(&**client, "client");
        Arc::clone(&change.node)
    };
    let (first, same, another) =
        (node_after_connect("a"), node_after_connect("a"), node_after_connect("b"));
    assert!(Arc::ptr_eq(&first, &same));
    assert_eq!(another.id, "b");
    assert!(hub.take_changed().is_empty(), "each change is returned once");
}

#[test]
fn forget_removes_only_disconnected_and_reported_clients() {
    let hub = Arc::new(Hub::default());
    let connection = connect(&hub);
    hub.take_changed();
    hub.forget("client");
    assert_eq!((hub.status().len(), hub.disconnected_clients().len()), (1, 0), "it is connected");
    drop(connection);
    assert_eq!(hub.disconnected_clients().len(), 1);
    hub.forget("client");
    assert_eq!(hub.status().len(), 1, "its disconnect has not been returned yet");
    hub.take_changed();
    hub.forget("client");
    assert!(hub.status().is_empty());
}

/// R8 (delta).
#[test]
fn streams_of_one_client_do_not_overwrite_each_other() {
    let [one, two] = [1, 2].map(|content| listener("l", content).version());
    let hub = Arc::new(Hub::default());
    let has = |resource_type, name: &str, version| {
        hub.has_all("client", [(resource_type, name, version)])
    };
    let (listeners, secrets) = (connect(&hub), connect(&hub));
    acked(&listeners, &[(ResourceType::Listener, "l", one)]);
    acked(&secrets, &[(ResourceType::Secret, "s", one)]);
    let another = connect(&hub);
    acked(&another, &[(ResourceType::Secret, "t", one)]);
    assert!(has(ResourceType::Listener, "l", one), "one stream has only secrets");
    assert!(has(ResourceType::Secret, "s", one), "one stream has another secret");
    assert!(has(ResourceType::Secret, "t", one));

    // A hot restart: the new Envoy has nothing yet, and then more than the old one.
    let new = connect(&hub);
    assert!(has(ResourceType::Listener, "l", one));
    acked(&new, &[(ResourceType::Listener, "l", two)]);
    acked(&listeners, &[(ResourceType::Listener, "l", one)]);
    assert!(has(ResourceType::Listener, "l", two), "the newest stream decides");
    assert!(!has(ResourceType::Listener, "l", one));
    // The new one fails to start, and only the old one is left.
    drop(new);
    assert!(has(ResourceType::Listener, "l", one));
    drop((listeners, secrets, another));
    assert!(!has(ResourceType::Listener, "l", one), "it is disconnected");
    let _again = connect(&hub);
    assert!(!has(ResourceType::Listener, "l", one), "the client has not reported it");
}

// A virtual machine that is killed and restarted before its old stream is known to be dead; or a
// hot restart.
#[test]
fn fresh_process_has_no_nacks_despite_open_old_streams() {
    let hub = Arc::new(Hub::default());
    let open = |reconnect| {
        hub.connect("client".into(), Node::default(), reconnect, usize::MAX, here()).unwrap()
    };
    let old = open(Reconnect::Fresh);
    let bad = listener("l", 1);
    let key = (ResourceType::Listener, Arc::from("l"));
    let nack = |connection: &Connection| {
        connection.nacked(&Nacked {
            resource_type: ResourceType::Listener,
            resources: vec![(Arc::from("l"), bad.version())],
            error: ErrorDetail { code: 13, message: "no".to_owned() },
            is_final: true,
            keeps_earlier: true,
        });
    };
    nack(&old);
    for reconnect in [Reconnect::Resumed, Reconnect::PerhapsFresh] {
        let further = open(reconnect);
        assert_eq!(
            further.nacked.get(&key),
            Some(&bad.version()),
            "a further stream: {reconnect:?}"
        );
        assert_eq!(hub.status_of("client").unwrap().process_starts, 1);
    }
    let new = open(Reconnect::Fresh);
    assert!(new.nacked.is_empty());
    let status = hub.status_of("client").unwrap();
    assert_eq!((status.process_starts, status.nacks.len()), (2, 0));
    // Services of single types: the first stream of a process finds no NACKs.
    nack(&new);
    drop((old, new));
    assert!(open(Reconnect::PerhapsFresh).nacked.is_empty());
    assert_eq!(hub.status_of("client").unwrap().process_starts, 3);
}

/// The ACKed state of a client that has ACKed one cluster with this content.
fn acked_state(content: u32) -> AckedState {
    let mut stream = SotwStream::new(&BTreeMap::new(), BTreeMap::new());
    let now = Instant::now();
    stream.on_set(set([cluster("c", content)]), now);
    let type_url = ResourceType::Cluster.url().to_owned();
    let mut request = SotwRequest { type_url, ..SotwRequest::default() };
    let outputs = stream.on_request(&request, now);
    let [SotwOutput::Send(push)] = &outputs[..] else { panic!("{outputs:?}") };
    (request.nonce, request.version_info) = (push.nonce.to_string(), push.version.to_string());
    stream.on_request(&request, now);
    stream.acked_state(ResourceType::Cluster).unwrap()
}

#[test]
fn next_stream_inherits_the_state_of_the_newest_stream() {
    let hub = Arc::new(Hub::default());
    let open = |reconnect| {
        hub.connect("client".into(), Node::default(), reconnect, usize::MAX, here()).unwrap()
    };
    let of = ResourceType::Cluster;
    let kept = || format!("{:?}", open(Reconnect::Resumed).acked_states[&of]);
    let text = |state: &AckedState| format!("{state:?}");
    let (one, two, three) = (acked_state(1), acked_state(2), acked_state(3));
    let old = open(Reconnect::Fresh);
    old.keep_acked_state(of, one.clone());
    assert_eq!(kept(), text(&one));
    let new = open(Reconnect::Fresh);
    new.keep_acked_state(of, two.clone());
    old.keep_acked_state(of, one);
    assert_eq!(kept(), text(&two), "the old process has written over it");
    new.keep_acked_state(of, three.clone());
    assert_eq!(kept(), text(&three));
}

#[test]
fn same_nack_is_reported_once() {
    let hub = Arc::new(Hub::default());
    let connection = connect(&hub);
    let report_nack = |connection: &Connection, names: &[(&str, u32)], is_final| {
        let version =
            |(name, content): &(&str, u32)| (Arc::from(*name), listener(name, *content).version());
        connection.nacked(&Nacked {
            resource_type: ResourceType::Listener,
            resources: names.iter().map(version).collect(),
            error: ErrorDetail { code: 13, message: "no".to_owned() },
            is_final,
            keeps_earlier: true,
        })
    };
    // The client NACKs a push of two resources, and then each by itself.
    assert!(!report_nack(&connection, &[("a", 1), ("b", 1)], false), "it is not known which");
    assert!(report_nack(&connection, &[("a", 1)], true));
    assert!(!report_nack(&connection, &[("a", 1)], true), "the same again");
    assert!(!report_nack(&connect(&hub), &[("a", 1)], true), "the same on another stream");
    assert!(report_nack(&connection, &[("a", 2)], true), "another version");
    assert!(report_nack(&connection, &[("a", 2), ("b", 1)], true), "another resource besides");
    // A new process NACKs it for the first time.
    let new = hub
        .connect("client".into(), Node::default(), Reconnect::Fresh, usize::MAX, here())
        .unwrap();
    assert!(report_nack(&new, &[("a", 2)], true));
}

/// Invariant 7. A resuming client requests what it lacks, and receives a removal.
#[test]
fn nack_is_cleared_only_by_ack_of_a_different_version() {
    let [one, two] = [1, 2].map(|content| listener("l", content));
    let hub = Arc::new(Hub::default());
    let connection = connect(&hub);
    let key = (ResourceType::Listener, Arc::from("l"));
    connection.nacked(&Nacked {
        resource_type: key.0,
        resources: vec![(Arc::clone(&key.1), one.version())],
        error: ErrorDetail { code: 13, message: "no".to_owned() },
        is_final: true,
        keeps_earlier: true,
    });
    let is_nacked = || hub.status_of("client").unwrap().nacks.contains_key(&key);
    let ack = Acked { resource_type: key.0, names: vec![Arc::clone(&key.1)] };
    connection.acked(&ack, Overlay::default());
    assert!(is_nacked(), "it was sent a removal, and has none");
    connection.acked(&ack, [(Arc::clone(&key.1), two.version())].into_iter().collect());
    assert!(!is_nacked(), "it has ACKed another version");
}

#[test]
fn unanswered_clusters_pass_once_to_the_resumed_stream() {
    let hub = Arc::new(Hub::default());
    let open = |reconnect| {
        hub.connect("client".into(), Node::default(), reconnect, usize::MAX, here()).unwrap()
    };
    let old = open(Reconnect::Fresh);
    old.take_unanswered();
    old.keep_unanswered(["a".into()].into());
    let new = open(Reconnect::Resumed);
    assert_eq!(new.take_unanswered(), ["a".into()].into());
    old.keep_unanswered(["b".into()].into());
    assert!(open(Reconnect::Resumed).take_unanswered().is_empty(), "an older stream has no effect");
    let newest = open(Reconnect::Resumed);
    newest.take_unanswered();
    newest.keep_unanswered(["c".into()].into());
    assert!(
        open(Reconnect::Fresh).take_unanswered().is_empty(),
        "another process waits for nothing"
    );
}

// Make before break: removing a cluster waits for every client that may have it.
#[test]
fn resumed_client_may_have_any_cluster_until_it_reports() {
    let hub = Arc::new(Hub::default());
    let open = |reconnect| {
        hub.connect("client".into(), Node::default(), reconnect, usize::MAX, here()).unwrap()
    };
    let may_have = |name| hub.other_client_may_have(ResourceType::Cluster, name, "other");
    let mut stream = open(Reconnect::ResumedWithClusters);
    assert!(may_have("a") && may_have("b"));
    assert!(!hub.other_client_may_have(ResourceType::Listener, "a", "other"), "only of clusters");
    acked(&stream, &[(ResourceType::Listener, "l", listener("l", 1).version())]);
    assert!(may_have("b"), "the client has reported another version");
    acked(&stream, &[(ResourceType::Cluster, "a", cluster("a", 1).version())]);
    assert!(may_have("b"), "it may report more");
    stream.initial_versions_compared();
    assert!(may_have("a") && !may_have("b"));
    let next = open(Reconnect::ResumedWithClusters);
    assert!(may_have("b"));
    drop(next);
    assert!(!may_have("b"), "the stream has ended without a word");
}

// A client whose base is unknown NACKs a whole push, of which perhaps one resource is bad.
#[test]
fn nack_of_several_resources_is_not_certain() {
    let hub = Arc::new(Hub::default());
    let connection = connect(&hub);
    let nack = |names: &[&str]| {
        let version = listener("l", 1).version();
        connection.nacked(&Nacked {
            resource_type: ResourceType::Listener,
            resources: names.iter().map(|name| (Arc::from(*name), version)).collect(),
            error: ErrorDetail { code: 13, message: "no".to_owned() },
            is_final: true,
            keeps_earlier: true,
        });
    };
    nack(&["a", "b"]);
    nack(&["c"]);
    let nacks = hub.status_of("client").unwrap().nacks;
    let certain: Vec<_> = nacks.values().map(|nack| nack.is_certain).collect();
    assert_eq!(certain, [false, false, true]);
}

#[test]
fn live_streams_are_listed_from_open_to_close() {
    let hub = Arc::new(Hub::default());
    let open = |address: &str, is_aggregated| {
        let live = LiveStream::begin(address.parse().unwrap(), is_aggregated);
        hub.connect("client".into(), Node::default(), Reconnect::Fresh, usize::MAX, live).unwrap()
    };
    let listed = || {
        let streams = hub.live_streams("client").into_iter();
        streams.map(|one| (one.address.to_string(), one.is_aggregated)).collect::<Vec<_>>()
    };
    let first = open("[::ffff:10.0.0.1]:5", true);
    let second = open("10.0.0.2:6", false);
    let both = [("10.0.0.1:5".to_owned(), true), ("10.0.0.2:6".to_owned(), false)];
    assert_eq!(listed(), both);
    drop(first);
    assert_eq!(listed(), both[1..]);
    drop(second);
    assert!(listed().is_empty() && hub.live_streams("another").is_empty());
}
