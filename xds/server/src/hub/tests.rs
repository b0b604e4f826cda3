use ironmesh_xds_wire::{ErrorDetail, SotwRequest};
use tokio::time::Instant;

use super::*;
use crate::sotw::{Output, SotwStream};
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
        let taken = Acked { resource_type: *resource_type, names: Vec::new() };
        connection.acked(&taken, acked);
    }
}

#[test]
fn unchanged_node_of_a_client_is_stored_once() {
    let hub = Arc::new(Hub::default());
    let node = |id: &str| Node { id: id.to_owned(), ..Node::default() };
    let mut connections = Vec::new();
    let mut told = |id: &str| {
        connections.push(
            hub.connect("client".into(), node(id), Reconnect::Fresh, usize::MAX, here()).unwrap(),
        );
        let news = hub.take_changed();
        let [(client, news)] = &news[..] else { panic!("{news:?}") };
        assert_eq!(&**client, "client");
        Arc::clone(&news.node)
    };
    let (first, same, another) = (told("a"), told("a"), told("b"));
    assert!(Arc::ptr_eq(&first, &same));
    assert_eq!(another.id, "b");
    assert!(hub.take_changed().is_empty(), "each change is taken once");
}

#[test]
fn forget_removes_only_disconnected_and_reported_clients() {
    let hub = Arc::new(Hub::default());
    let connection = connect(&hub);
    hub.take_changed();
    hub.forget("client");
    assert_eq!((hub.status().len(), hub.away().len()), (1, 0), "it is connected");
    drop(connection);
    assert_eq!(hub.away().len(), 1);
    hub.forget("client");
    assert_eq!(hub.status().len(), 1, "nobody knows yet that it has left");
    hub.take_changed();
    hub.forget("client");
    assert!(hub.status().is_empty());
}

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
    // It does not come up, and the old one is all there is.
    drop(new);
    assert!(has(ResourceType::Listener, "l", one));
    drop((listeners, secrets, another));
    assert!(!has(ResourceType::Listener, "l", one), "nobody is there");
    let _again = connect(&hub);
    assert!(!has(ResourceType::Listener, "l", one), "it has not said so");
}

// A virtual machine that is killed and back before its old stream is known to be dead; a hot restart.
#[test]
fn fresh_process_has_no_nacks_despite_open_old_streams() {
    let hub = Arc::new(Hub::default());
    let come =
        |coming| hub.connect("client".into(), Node::default(), coming, usize::MAX, here()).unwrap();
    let old = come(Reconnect::Fresh);
    let bad = listener("l", 1);
    let key = (ResourceType::Listener, Arc::from("l"));
    let refused = |connection: &Connection| {
        connection.nacked(&Nacked {
            resource_type: ResourceType::Listener,
            resources: vec![(Arc::from("l"), bad.version())],
            error: ErrorDetail { code: 13, message: "no".to_owned() },
            is_final: true,
            keeps_earlier: true,
        });
    };
    refused(&old);
    for coming in [Reconnect::Resumed, Reconnect::PerhapsFresh] {
        let further = come(coming);
        assert_eq!(further.refused.get(&key), Some(&bad.version()), "a further stream: {coming:?}");
        assert_eq!(hub.status_of("client").unwrap().beginnings, 1);
    }
    let new = come(Reconnect::Fresh);
    assert!(new.refused.is_empty());
    let status = hub.status_of("client").unwrap();
    assert_eq!((status.beginnings, status.nacks.len()), (2, 0));
    // Services of single types: the first stream of a process finds none.
    refused(&new);
    drop((old, new));
    assert!(come(Reconnect::PerhapsFresh).refused.is_empty());
    assert_eq!(hub.status_of("client").unwrap().beginnings, 3);
}

/// All clusters in force of a client that has taken one of this content.
fn in_force(content: u32) -> InForce {
    let mut stream = SotwStream::new(&BTreeMap::new(), BTreeMap::new());
    let now = Instant::now();
    stream.on_set(set([cluster("c", content)]), now);
    let type_url = ResourceType::Cluster.url().to_owned();
    let mut request = SotwRequest { type_url, ..SotwRequest::default() };
    let outputs = stream.on_request(&request, now);
    let [Output::Send(push)] = &outputs[..] else { panic!("{outputs:?}") };
    (request.nonce, request.version_info) = (push.nonce.to_string(), push.version.to_string());
    stream.on_request(&request, now);
    stream.in_force(ResourceType::Cluster).unwrap()
}

#[test]
fn next_stream_inherits_the_state_of_the_newest_stream() {
    let hub = Arc::new(Hub::default());
    let come =
        |coming| hub.connect("client".into(), Node::default(), coming, usize::MAX, here()).unwrap();
    let of = ResourceType::Cluster;
    let kept = || format!("{:?}", come(Reconnect::Resumed).in_force[&of]);
    let text = |in_force: &InForce| format!("{in_force:?}");
    let (one, two, three) = (in_force(1), in_force(2), in_force(3));
    let old = come(Reconnect::Fresh);
    old.keep(of, one.clone());
    assert_eq!(kept(), text(&one));
    let new = come(Reconnect::Fresh);
    new.keep(of, two.clone());
    old.keep(of, one);
    assert_eq!(kept(), text(&two), "the old process has written over it");
    new.keep(of, three.clone());
    assert_eq!(kept(), text(&three));
}

#[test]
fn same_nack_is_reported_once() {
    let hub = Arc::new(Hub::default());
    let connection = connect(&hub);
    let refuses = |connection: &Connection, names: &[(&str, u32)], is_final| {
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
    // A push of two is refused, and each by itself is tried.
    assert!(!refuses(&connection, &[("a", 1), ("b", 1)], false), "it is not known which");
    assert!(refuses(&connection, &[("a", 1)], true));
    assert!(!refuses(&connection, &[("a", 1)], true), "the same again");
    assert!(!refuses(&connect(&hub), &[("a", 1)], true), "the same on another stream");
    assert!(refuses(&connection, &[("a", 2)], true), "another version");
    assert!(refuses(&connection, &[("a", 2), ("b", 1)], true), "another resource besides");
    // Another process says it for the first time.
    let new = hub
        .connect("client".into(), Node::default(), Reconnect::Fresh, usize::MAX, here())
        .unwrap();
    assert!(refuses(&new, &[("a", 2)], true));
}

// Invariant 7. A client that comes back asks for what it has not, and is told that it is not there.
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
    let refuses = || hub.status_of("client").unwrap().nacks.contains_key(&key);
    let taken = Acked { resource_type: key.0, names: vec![Arc::clone(&key.1)] };
    connection.acked(&taken, Overlay::default());
    assert!(refuses(), "it was told that there is none, and has none");
    connection.acked(&taken, [(Arc::clone(&key.1), two.version())].into_iter().collect());
    assert!(!refuses(), "it has taken another version");
}

#[test]
fn unanswered_clusters_pass_once_to_the_resumed_stream() {
    let hub = Arc::new(Hub::default());
    let come =
        |coming| hub.connect("client".into(), Node::default(), coming, usize::MAX, here()).unwrap();
    let old = come(Reconnect::Fresh);
    old.take_unanswered();
    old.keep_unanswered(["a".into()].into());
    let new = come(Reconnect::Resumed);
    assert_eq!(new.take_unanswered(), ["a".into()].into());
    old.keep_unanswered(["b".into()].into());
    assert!(
        come(Reconnect::Resumed).take_unanswered().is_empty(),
        "what an older one says is of no account"
    );
    let newest = come(Reconnect::Resumed);
    newest.take_unanswered();
    newest.keep_unanswered(["c".into()].into());
    assert!(
        come(Reconnect::Fresh).take_unanswered().is_empty(),
        "another process waits for nothing"
    );
}

// Make before break: whoever lets a cluster go waits for those who may have it.
#[test]
fn resumed_client_may_have_any_cluster_until_it_reports() {
    let hub = Arc::new(Hub::default());
    let come =
        |coming| hub.connect("client".into(), Node::default(), coming, usize::MAX, here()).unwrap();
    let may_have = |name| hub.anyone_names(ResourceType::Cluster, name, "other");
    let mut stream = come(Reconnect::ResumedWithClusters);
    assert!(may_have("a") && may_have("b"));
    assert!(!hub.anyone_names(ResourceType::Listener, "a", "other"), "only of clusters");
    acked(&stream, &[(ResourceType::Listener, "l", listener("l", 1).version())]);
    assert!(may_have("b"), "it has said something else");
    acked(&stream, &[(ResourceType::Cluster, "a", cluster("a", 1).version())]);
    assert!(may_have("b"), "there may be more to tell");
    stream.has_compared();
    assert!(may_have("a") && !may_have("b"));
    let next = come(Reconnect::ResumedWithClusters);
    assert!(may_have("b"));
    drop(next);
    assert!(!may_have("b"), "the stream has ended without a word");
}

// A client whose base is not known refuses all that it was sent, and perhaps one thing of it is bad.
#[test]
fn nack_of_several_resources_is_not_certain() {
    let hub = Arc::new(Hub::default());
    let connection = connect(&hub);
    let refuse = |names: &[&str]| {
        let version = listener("l", 1).version();
        connection.nacked(&Nacked {
            resource_type: ResourceType::Listener,
            resources: names.iter().map(|name| (Arc::from(*name), version)).collect(),
            error: ErrorDetail { code: 13, message: "no".to_owned() },
            is_final: true,
            keeps_earlier: true,
        });
    };
    refuse(&["a", "b"]);
    refuse(&["c"]);
    let nacks = hub.status_of("client").unwrap().nacks;
    let certain: Vec<_> = nacks.values().map(|nack| nack.is_certain).collect();
    assert_eq!(certain, [false, false, true]);
}

#[test]
fn live_streams_are_listed_from_open_to_close() {
    let hub = Arc::new(Hub::default());
    let come = |address: &str, is_aggregated| {
        let live = LiveStream::begin(address.parse().unwrap(), is_aggregated);
        hub.connect("client".into(), Node::default(), Reconnect::Fresh, usize::MAX, live).unwrap()
    };
    let listed = || {
        let streams = hub.live_streams("client").into_iter();
        streams.map(|one| (one.address.to_string(), one.is_aggregated)).collect::<Vec<_>>()
    };
    let first = come("[::ffff:10.0.0.1]:5", true);
    let second = come("10.0.0.2:6", false);
    let both = [("10.0.0.1:5".to_owned(), true), ("10.0.0.2:6".to_owned(), false)];
    assert_eq!(listed(), both);
    drop(first);
    assert_eq!(listed(), both[1..]);
    drop(second);
    assert!(listed().is_empty() && hub.live_streams("another").is_empty());
}
