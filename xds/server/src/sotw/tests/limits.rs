//! Everything is bounded (invariant 10): responses, and what a client can make us hold.

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener};
use ironmesh_xds_wire::{ResourceSet, SotwRequest};

use super::client::Client;
use crate::test_resources::{cluster, endpoints, large_cluster, large_endpoints, set};

// R41, R42.
#[test]
fn a_large_response_is_split_where_it_may_be() {
    let mut all = ResourceSet::default();
    for name in ["a", "b", "c", "d", "e"] {
        all.insert(large_cluster(name, 1, 100 * 1024));
        all.insert(large_endpoints(name, 100 * 1024));
    }
    let mut client = Client::new();
    client.give(&all);
    client.subscribe_to(&all);
    assert_eq!(client.saw(), ["CDS a b c d e", "EDS a b c", "SDS"]);
    client.take(Endpoint);
    client.take(Endpoint);
    client.take(Cluster);
    assert_eq!(client.saw(), ["EDS d e", "LDS", "RDS"]);
}

// R7.
#[test]
fn an_unknown_type_is_not_answered_and_the_stream_lives() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    let type_url = "type.googleapis.com/envoy.config.route.v3.VirtualHost".to_owned();
    client.request(&SotwRequest { type_url, ..SotwRequest::default() });
    client.give(&set([cluster("a", 2), endpoints("a", 1)]));
    assert_eq!(client.saw(), ["CDS a"]);
}

#[test]
fn a_client_that_asks_for_too_many_unknown_types_or_for_one_of_a_huge_name_is_dropped() {
    let mut client = Client::settled(&ResourceSet::default());
    for n in 0..33 {
        assert!(client.saw().is_empty(), "{n}");
        client.request(&SotwRequest { type_url: n.to_string(), ..SotwRequest::default() });
    }
    assert_eq!(client.saw(), ["closed: the client asks for too many unknown resource types"]);
    client.request(&SotwRequest { type_url: "x".repeat(1000), ..SotwRequest::default() });
    assert_eq!(client.saw(), ["closed: the client asks for a resource type of too long a name"]);
}

#[test]
fn a_client_that_subscribes_to_too_many_names_is_dropped() {
    let mut client = Client::settled(&ResourceSet::default());
    let names: Vec<_> = (0..16).map(|n| format!("{n}{}", "x".repeat(1 << 20))).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let first = |count: usize| names.iter().take(count).copied().collect::<Vec<_>>();
    client.ask(Listener, &[first(15), first(15)].concat());
    client.ask(Listener, &first(15));
    assert!(client.saw().is_empty(), "the same name is one");
    client.ask(Listener, &names);
    assert_eq!(client.saw(), ["closed: the client subscribes to too many names"]);
}
