//! A client that comes back with one version of everything.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Listener};
use ironmesh_xds_wire::SotwRequest;

use super::client::Client;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, listener, set};

fn everything() -> ResourceSet {
    set([cluster("a", 1), cluster("b", 1), listener("l", 1)])
}

/// R12, R61: a client that names something, and be it the wildcard, may have dropped something before.
#[test]
fn clusters_that_are_asked_for_by_name_are_sent_whatever_the_version() {
    for names in [&["a", "b"][..], &["*"]] {
        let mut client = Client::new();
        client.give(&everything());
        client.ask(Cluster, names);
        client.take_all();
        client.saw();
        client.reconnect();
        client.give(&everything());
        client.ask(Cluster, names);
        assert_eq!(client.saw(), ["CDS"], "all again, and nothing else");
        assert_eq!(client.open[0].resources, [cluster("a", 1), cluster("b", 1)]);
    }
}

/// Rule 7: versions that cannot be ours.
#[test]
fn a_client_with_a_version_that_we_never_gave_is_sent_all() {
    let mut client = Client::new();
    client.give(&everything());
    client.request(&SotwRequest {
        type_url: Cluster.url().to_owned(),
        version_info: "of another control plane".to_owned(),
        ..SotwRequest::default()
    });
    assert_eq!(client.saw(), ["CDS +a +b"]);
}

/// R41: to leave out what is refused would remove what the client has in its place, and what that is
/// a control plane that was restarted does not know.
#[test]
fn what_a_client_of_an_unknown_version_refuses_leaves_it_as_it_is() {
    let mut client = Client::settled(&everything());
    client.reconnect_elsewhere();
    let mut bad = everything();
    bad.insert(cluster("a", 2));
    client.give(&bad);
    client.come_back(Cluster);
    client.come_back(Listener);
    client.refuse(Cluster, "a is bad");
    assert_eq!(client.saw(), ["CDS +a", "CDS refused: a b (a is bad)"], "its words say which");
    client.pass(REMOVAL_GRACE);
    client.give(&bad);
    assert!(client.saw().is_empty());
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
    bad.insert(cluster("a", 3));
    client.give(&bad);
    assert_eq!(client.saw(), ["CDS +a"]);
}
