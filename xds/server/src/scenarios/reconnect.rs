//! A client that resumes and reports what it has: a version per resource in delta, else one version
//! per type.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};

use super::client::{Client, ENVOYS_ORDER};
use super::dialect::Dialect;
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, listener, listener_of, route, secret, set};

in_both_variants! {
    versions_reported_after_reconnect_are_not_resent,
    reconnect_sends_changes_and_removals_since_disconnect,
    cluster_removed_while_disconnected_goes_when_unreferenced,
    endpoints_follow_cluster_changed_before_reconnect,
    version_nacked_on_earlier_stream_is_not_resent,
    partially_applied_nacked_push_is_corrected_after_reconnect,
    versions_reported_after_server_restart_count_as_acked,
    listener_that_waits_for_its_cluster_stays_after_reconnect,
    partially_applied_push_on_unknown_base_is_corrected,
}

fn everything() -> ResourceSet {
    set([
        secret("s", 1),
        cluster("a", 1),
        endpoints("a", 1),
        cluster("b", 1),
        endpoints("b", 1),
        listener("l", 1),
        route("r", 1),
    ])
}

/// Resumes a client that has ACKed [`everything`], at a server that has a set already, or not yet.
fn resume_all<V: Dialect>(client: &mut Client<V>, set: &ResourceSet, has_set_first: bool) {
    if has_set_first {
        client.publish(set);
    }
    for of in ENVOYS_ORDER {
        client.resume(of);
    }
    if !has_set_first {
        client.publish(set);
    }
}

/// The pushes so far, in any order.
fn sorted_log<V: Dialect>(client: &mut Client<V>) -> Vec<String> {
    let mut pushes = client.take_pushes();
    pushes.sort();
    pushes
}

/// Rule 7, R12, R23, invariant 4, invariant 8: parts (a) and (d) of rule 7,
/// also at a restarted server.
fn versions_reported_after_reconnect_are_not_resent<V: Dialect>() {
    for is_restarted in [false, true] {
        for has_set_first in [false, true] {
            let mut client = Client::<V>::settled(&everything());
            if is_restarted {
                client.reconnect_elsewhere();
            } else {
                client.reconnect();
            }
            resume_all(&mut client, &everything(), has_set_first);
            // For types whose responses are partial, one version says too little.
            let sotw = &["EDS +a +b", "RDS +r", "SDS +s"];
            assert_eq!(sorted_log(&mut client), V::either(&[][..], sotw));
            client.ack_all();
            client.pass(REMOVAL_GRACE);
            assert!(client.take_pushes().is_empty());
            assert!(client.stream.acked(Cluster).contains_key("a"), "it is known to have it");
            assert!(client.stream.acked(Listener).contains_key("l"));
        }
    }
}

/// Rule 7, R43, R57: parts (b) and (c) of rule 7.
fn reconnect_sends_changes_and_removals_since_disconnect<V: Dialect>() {
    let now = set([
        secret("s", 1),
        cluster("a", 2),
        endpoints("a", 1),
        cluster("c", 1),
        endpoints("c", 1),
        listener("l", 2),
        route("r", 1),
    ]);
    for has_set_first in [true, false] {
        let mut client = Client::<V>::settled(&everything());
        client.reconnect();
        resume_all(&mut client, &now, has_set_first);
        let (delta, sotw) = (
            ["CDS +a +c", "EDS +a", "LDS +l"],
            ["CDS +a +c", "EDS +a", "LDS +l", "RDS +r", "SDS +s"],
        );
        assert_eq!(sorted_log(&mut client), V::either(&delta[..], &sotw));
        client.ack_all();
        assert!(client.take_pushes().is_empty());
        client.pass(REMOVAL_GRACE);
        client.ack_all();
        assert_eq!(client.take_pushes(), V::either(&["CDS -b", "EDS -b"][..], &["CDS -b"]));
    }
}

/// Rule 7, R53, R57: even if the client has not requested all types.
fn cluster_removed_while_disconnected_goes_when_unreferenced<V: Dialect>() {
    let mut client = Client::<V>::settled(&everything());
    client.reconnect();
    client.publish(&set([cluster("a", 2), endpoints("a", 1), listener("l", 1), route("r", 2)]));
    for of in [Cluster, Endpoint, Listener, Route] {
        client.resume(of);
    }
    assert_eq!(sorted_log(&mut client), ["CDS +a", "EDS +a", "RDS +r"]);
    client.ack(Endpoint);
    client.ack(Cluster);
    client.pass(REMOVAL_GRACE);
    assert!(client.take_pushes().is_empty());
    client.ack(Route);
    assert_eq!(client.take_pushes(), ["CDS -b"]);
}

/// Rule 1, R57: Envoy warms a changed cluster even after a reconnect, with an old subscription.
fn endpoints_follow_cluster_changed_before_reconnect<V: Dialect>() {
    let mut client = Client::<V>::settled(&everything());
    client.reconnect();
    client.publish(&set([cluster("a", 2), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)]));
    client.resume(Cluster);
    client.resume(Endpoint);
    assert_eq!(client.take_pushes(), V::either(["CDS +a", "EDS +a"], ["CDS +a", "EDS +a +b"]));
}

/// R19, invariant 7.
fn version_nacked_on_earlier_stream_is_not_resent<V: Dialect>() {
    let mut client = Client::<V>::settled(&everything());
    let mut bad = everything();
    bad.insert(cluster("a", 2));
    bad.insert(secret("s", 2));
    client.publish(&bad);
    client.nack(Cluster, "no");
    client.nack(Secret, "no");
    client.reconnect();
    resume_all(&mut client, &bad, true);
    // Only a first request is always answered.
    let sotw = &["EDS +a +b", "RDS +r", "SDS"];
    assert_eq!(sorted_log(&mut client), V::either(&[][..], sotw));
    client.ack_all();
    bad.insert(cluster("b", 2));
    client.publish(&bad);
    // A NACKed whole state may have been applied in part, and a is as before again.
    assert_eq!(client.take_pushes(), V::either(["CDS +b", "EDS +b"], ["CDS +b", "EDS +a +b"]));
    client.ack_all();
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
    bad.insert(cluster("a", 3));
    client.publish(&bad);
    assert_eq!(client.take_pushes(), ["CDS +a", "EDS +a"]);
}

/// Rule 5: in the state of the world, the version does not reveal what the client applied of a
/// NACKed push.
fn partially_applied_nacked_push_is_corrected_after_reconnect<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([cluster("a", 1)]));
    client.publish(&set([cluster("a", 2), cluster("bad", 1)]));
    client.nack_in_part(Cluster, |resource| &**resource.name() == "bad");
    client.reconnect();
    client.publish(&set([cluster("a", 1)]));
    client.resume(Cluster);
    client.ack_all();
    assert_eq!(client.take_pushes(), ["CDS +a"]);
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
}

/// Invariant 4: a restarted control plane knows what its clients have.
fn versions_reported_after_server_restart_count_as_acked<V: Dialect>() {
    for of in [Cluster, Listener] {
        let mut client = Client::<V>::settled(&everything());
        client.reconnect_elsewhere();
        client.publish(&everything());
        client.resume(of);
        let ack_reports = client.take_ack_reports();
        assert!(matches!(&ack_reports[..], [news] if news.ends_with("DS")), "{ack_reports:?}");
        assert!(client.take_pushes().is_empty());
        let has = client.stream.acked(of);
        assert_eq!(has.len(), everything().of(of).len());
    }
}

/// R41, R57: the server does not know what the client has. In the state of the world, to omit a
/// listener that must wait would remove it.
fn listener_that_waits_for_its_cluster_stays_after_reconnect<V: Dialect>() {
    let waiting = listener_of("l", 1, &["a"]);
    let mut client = Client::<V>::settled(&set([waiting.clone()]));
    client.reconnect_elsewhere();
    client.publish(&set([cluster("a", 1), waiting.clone(), listener("m", 1)]));
    client.resume(Cluster);
    client.resume(Listener);
    assert_eq!(client.take_pushes(), V::either(&["CDS +a", "LDS +m"][..], &["CDS +a"]));
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), V::either(&[][..], &["LDS +m"]));
    client.ack(Listener);
    assert_eq!(client.has[&(Listener, "l".into())], waiting);
    assert_eq!(client.has[&(Listener, "m".into())], listener("m", 1));
}

/// Rule 5, R12: the version that a client reports does not cover parts that it applied of a push on
/// a state unknown to the server.
fn partially_applied_push_on_unknown_base_is_corrected<V: Dialect>() {
    let bad = listener("bad", 1);
    let mut client = Client::<V>::settled(&set([listener("l", 1)]));
    client.reconnect_elsewhere();
    client.publish(&set([bad.clone()]));
    client.resume(Listener);
    assert_eq!(client.take_pushes(), V::either(["LDS +bad"], ["LDS +bad -l"]));
    client.nack_in_part(Listener, |one| one == &*bad);
    assert_eq!(client.take_pushes(), ["LDS nacked: bad (in part)"]);
    client.reconnect();
    client.publish(&set([listener("l", 1)]));
    client.resume(Listener);
    assert_eq!(client.take_pushes(), V::either(&[][..], &["LDS +l"]));
    client.ack_all();
    assert_eq!(client.has[&(Listener, "l".into())], listener("l", 1));
}
