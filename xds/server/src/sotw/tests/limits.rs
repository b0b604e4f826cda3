//! Limits (invariant 10) on responses, and on names that are sent each time.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener};

use super::client::Client;
use crate::test_resources::{large_cluster, large_endpoints};

/// R41, R42.
#[test]
fn large_response_is_split_for_endpoints_but_not_clusters() {
    let mut all = ResourceSet::default();
    for name in ["a", "b", "c", "d", "e"] {
        all.insert(large_cluster(name, 1, 100 * 1024));
        all.insert(large_endpoints(name, 100 * 1024));
    }
    let mut client = Client::new();
    client.publish(&all);
    client.subscribe_to(&all);
    assert_eq!(client.take_pushes(), ["CDS +a +b +c +d +e", "EDS +a +b +c", "SDS"]);
    client.ack(Endpoint);
    client.ack(Endpoint);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["EDS +d +e", "LDS", "RDS"]);
}

/// A26, A27.
#[test]
fn duplicate_names_count_once_toward_the_limit() {
    let mut client = Client::settled(&ResourceSet::default());
    let names: Vec<_> = (0..16).map(|n| format!("{n}{}", "x".repeat(1 << 20))).collect();
    let names: Vec<_> = names.iter().map(String::as_str).collect();
    let first = |count: usize| names.iter().take(count).copied().collect::<Vec<_>>();
    client.request_names(Listener, &[first(15), first(15)].concat());
    client.request_names(Listener, &first(15));
    assert!(client.take_pushes().is_empty(), "the same name is one");
    client.request_names(Listener, &names);
    assert_eq!(client.take_pushes(), ["closed: the client subscribes to too many names"]);
}
