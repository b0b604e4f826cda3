//! A client that resumes with the version of each of its resources.

use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Route};
use ironmesh_xds_wire::{DeltaRequest, ResourceSet};

use super::client::{Client, subscribe};
use crate::delta::DeltaOutput;
use crate::scenarios::client::ENVOYS_ORDER;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, listener, route, secret, set};

/// R53, R57: the first request is about clusters; those about listeners and routes follow.
#[test]
fn removals_wait_until_client_requested_all_its_types() {
    let all = |r| [secret("s", 1), cluster("a", 1), endpoints("a", 1), route("r", r)];
    let mut old = set(all(1));
    old.insert(cluster("b", 1));
    old.insert(endpoints("b", 1));
    old.insert(listener("l", 1));
    let mut client = Client::settled(&old);
    client.reconnect();
    client.publish(&set(all(2)));
    for of in ENVOYS_ORDER {
        client.resume(of);
    }
    assert_eq!(client.take_pushes(), ["RDS +r"]);
    client.ack(Route);
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.take_pushes(), ["LDS -l"]);
}

/// Rule 7: versions that this server cannot have sent.
#[test]
fn unknown_initial_version_counts_as_outdated() {
    let mut client = Client::new();
    client.publish(&set([cluster("a", 1)]));
    let mut request = subscribe(Cluster, &[]);
    for name in ["a", "gone"] {
        Arc::make_mut(&mut request.initial_versions).push(name, "of another control plane");
    }
    client.request(&request);
    assert_eq!(client.take_pushes(), ["CDS +a"]);
    client.ack(Cluster);
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.take_pushes(), ["CDS -gone"]);
}

/// R29, R38: before a set is published.
#[test]
fn unsubscribed_initial_versions_are_discarded() {
    let mut client = Client::new();
    let versions = set([endpoints("a", 1), endpoints("b", 1), endpoints("c", 1)]);
    let mut first = subscribe(Endpoint, &["a", "b", "c"]);
    for (name, resource) in versions.of(Endpoint) {
        Arc::make_mut(&mut first.initial_versions).push(name, &resource.version().to_string());
    }
    client.request(&first);
    let dropped = DeltaRequest { unsubscribe: ["a", "b"].into(), ..subscribe(Endpoint, &[]) };
    client.request(&dropped);
    client.request(&subscribe(Endpoint, &["b"]));
    client.publish(&versions);
    assert_eq!(client.take_pushes(), ["EDS +b"], "a is not wanted, c is there already");
    let acked = client.stream.acked(Endpoint);
    assert!(acked.contains_key("c") && !acked.contains_key("a") && !acked.contains_key("b"));
}

/// R33, R34: before a set is published.
#[test]
fn unsubscribed_wildcard_discards_its_initial_versions() {
    let mut client = Client::new();
    let all = set([cluster("a", 1), cluster("b", 1)]);
    let mut first = subscribe(Cluster, &["*", "b"]);
    for (name, resource) in all.of(Cluster) {
        Arc::make_mut(&mut first.initial_versions).push(name, &resource.version().to_string());
    }
    client.request(&first);
    client.request(&DeltaRequest { unsubscribe: ["*"].into(), ..subscribe(Cluster, &[]) });
    client.request(&subscribe(Cluster, &["*"]));
    client.publish(&all);
    assert_eq!(client.take_pushes(), ["CDS +a"]);
}

/// R24, R27, R37: besides what it has, a client may subscribe to other names.
#[test]
fn name_without_initial_version_gets_a_response() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.reconnect();
    client.publish(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.resume_for(Endpoint, &["a", "b", "missing"]);
    assert_eq!(client.take_pushes(), ["EDS +b -missing"]);
}

/// R38.
#[test]
fn initial_versions_of_unsubscribed_names_are_ignored() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.reconnect();
    client.publish(&ResourceSet::default());
    client.resume_for(Endpoint, &["b"]);
    client.ack(Endpoint);
    client.pass(REMOVAL_GRACE);
    assert_eq!(client.take_pushes(), ["EDS -b"]);
}

/// Invariant 4. Initial versions are compared with the published set, and nothing can be sent
/// before that anyway.
#[test]
fn initial_versions_count_as_acked_once_a_set_is_published() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.reconnect();
    let version = cluster("a", 1).version();
    let delivered = [("a", version.to_string())].into();
    let request = DeltaRequest { initial_versions: Arc::new(delivered), ..subscribe(Cluster, &[]) };
    assert!(client.stream.on_request(&request, client.now).is_empty());
    let outputs = client.stream.on_set(set([cluster("a", 1)]), client.now);
    let [DeltaOutput::Acked(acked)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(acked.resource_type, Cluster);
    assert_eq!(client.stream.acked(Cluster).get("a"), Some(version));
}

/// Rule 1, R57: a client that lost its stream between a cluster and its endpoints reports both, and
/// warms the cluster.
#[test]
fn endpoints_follow_cluster_left_unacked_by_previous_stream() {
    let all = |a| set([cluster("a", a), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)]);
    let mut client = Client::settled(&all(1));
    client.publish(&all(2));
    let unanswered = client.stream.unanswered_clusters();
    assert_eq!(unanswered, ["a".into()].into());
    client.has.insert((Cluster, "a".into()), cluster("a", 2));
    client.reconnect();
    client.stream.resend_endpoints(&unanswered);
    client.publish(&all(2));
    for of in [Cluster, Endpoint] {
        client.resume(of);
    }
    assert_eq!(client.take_pushes(), ["EDS +a"]);
    client.ack_all();
    assert!(client.stream.unanswered_clusters().is_empty());
}
