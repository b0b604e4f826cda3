//! A client that resumes with one version per type.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Listener, Route};
use ironmesh_xds_wire::SotwRequest;

use super::client::Client;
use crate::stream::{ACK_DEADLINE, REMOVAL_GRACE};
use crate::test_resources::{cluster, listener, route_to, set};

fn everything() -> ResourceSet {
    set([cluster("a", 1), cluster("b", 1), listener("l", 1)])
}

/// R12, R61: a client that names resources, or the wildcard, may have dropped something before.
#[test]
fn explicitly_requested_clusters_are_sent_at_any_version() {
    for names in [&["a", "b"][..], &["*"]] {
        let mut client = Client::new();
        client.publish(&everything());
        client.request_names(Cluster, names);
        client.ack_all();
        client.take_pushes();
        client.reconnect();
        client.publish(&everything());
        client.request_names(Cluster, names);
        assert_eq!(client.take_pushes(), ["CDS"], "all again, and nothing else");
        assert_eq!(client.open[0].resources, [cluster("a", 1), cluster("b", 1)]);
    }
}

/// Rule 7: versions that this server cannot have sent.
#[test]
fn unknown_version_info_gets_all_resources() {
    let mut client = Client::new();
    client.publish(&everything());
    client.request(&SotwRequest {
        type_url: Cluster.url().to_owned(),
        version_info: "of another control plane".to_owned(),
        ..SotwRequest::default()
    });
    assert_eq!(client.take_pushes(), ["CDS +a +b"]);
}

/// R41: to omit a NACKed resource would remove the client's version of it, which a restarted
/// control plane does not know.
#[test]
fn nacked_push_on_unknown_version_causes_no_removal() {
    let mut client = Client::settled(&everything());
    client.reconnect_elsewhere();
    let mut bad = everything();
    bad.insert(cluster("a", 2));
    client.publish(&bad);
    client.resume(Cluster);
    client.resume(Listener);
    client.nack(Cluster, "a is bad");
    assert_eq!(
        client.take_pushes(),
        ["CDS +a", "CDS nacked: a b (a is bad)"],
        "its words say which"
    );
    client.pass(REMOVAL_GRACE);
    client.publish(&bad);
    assert!(client.take_pushes().is_empty());
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
    bad.insert(cluster("a", 3));
    client.publish(&bad);
    assert_eq!(client.take_pushes(), ["CDS +a"]);
}

/// A client that has cluster a. It received a push that adds b, which it NACKs, and one that
/// removes a. The server could not see its reply to the first.
fn client_possibly_without_cluster_a() -> Client {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.publish(&set([cluster("b", 1)]));
    client.pass(ACK_DEADLINE);
    assert_eq!(client.take_pushes(), ["CDS +b", "CDS late", "CDS -a"]);
    client.nack(Cluster, "b is bad");
    client
}

/// Rule 5, R54: a client that NACKed a push may have removed what was not in it, and reports the
/// earlier version.
#[test]
fn route_waits_for_cluster_possibly_removed_by_partial_nack() {
    let mut client = client_possibly_without_cluster_a();
    client.nack_in_part(Cluster, |one| one == &*cluster("b", 1));
    assert_eq!(client.take_pushes(), ["CDS nacked: b (in part)", "CDS +a"]);
    client.reconnect();
    resume_and_expect_route_to_wait(&mut client, &set([cluster("a", 1), route_to("r", 1, &["a"])]));
}

/// Rule 5. The same, if the stream ended before the server saw the NACK.
#[test]
fn route_waits_for_cluster_possibly_removed_by_unacked_push() {
    let mut client = client_possibly_without_cluster_a();
    client.has.clear();
    client.reconnect();
    resume_and_expect_route_to_wait(&mut client, &set([cluster("a", 1), route_to("r", 1, &["a"])]));
}

fn resume_and_expect_route_to_wait(client: &mut Client, set: &ResourceSet) {
    client.publish(set);
    client.resume(Cluster);
    client.subscribe(Route, &["r"]);
    assert_eq!(client.take_pushes(), ["CDS +a", "RDS"], "the version names too few resources");
    client.ack(Route);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["RDS +r"]);
}

/// R12: the version reveals that the client ACKed a push, even if the ACK was lost.
#[test]
fn push_matching_reported_version_counts_as_acked() {
    let mut client = Client::settled(&set([cluster("a", 1), cluster("b", 1)]));
    let new = set([cluster("a", 2), cluster("b", 1)]);
    client.publish(&new);
    client.versions.insert(Cluster, client.open[0].version.unwrap());
    client.has.insert((Cluster, "a".into()), cluster("a", 2));
    client.take_pushes();
    client.reconnect();
    client.publish(&set([cluster("a", 2), cluster("b", 2)]));
    client.resume(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +b"]);
    assert_eq!(client.stream.acked(Cluster).get("a"), Some(cluster("a", 2).version()));
}

/// R12. The same if the client has dropped names meanwhile, which its version does not reveal.
#[test]
fn reported_version_of_partly_unsubscribed_push_is_not_acked() {
    let mut client = Client::settled(&ResourceSet::default());
    client.request_names(Cluster, &["a", "b"]);
    client.publish(&set([cluster("a", 1), cluster("b", 1)]));
    client.versions.insert(Cluster, client.open[0].version.unwrap());
    client.has.insert((Cluster, "b".into()), cluster("b", 1));
    client.take_pushes();
    client.reconnect();
    client.publish(&set([cluster("a", 1), cluster("b", 1), route_to("r", 1, &["a"])]));
    client.resume(Cluster);
    client.subscribe(Route, &["r"]);
    assert_eq!(client.take_pushes(), ["CDS +a", "RDS"]);
    client.ack(Route);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["RDS +r"]);
}

/// Rule 5, R12: a version that was ACKed too late is recognized by the published set. A push that
/// was NACKed after it may have removed some of it.
#[test]
fn cluster_possibly_removed_after_late_ack_is_resent() {
    let mut client = Client::settled(&ResourceSet::default());
    client.publish(&set([cluster("a", 1)]));
    client.publish(&set([cluster("b", 1)]));
    client.pass(2 * ACK_DEADLINE);
    let pushes = client.take_pushes();
    assert_eq!(pushes, ["CDS +a", "CDS late", "CDS +b", "CDS late", "CDS -a"]);
    client.ack(Cluster);
    client.has.clear();
    client.reconnect();
    resume_and_expect_route_to_wait(&mut client, &set([cluster("a", 1), route_to("r", 1, &["a"])]));
}
