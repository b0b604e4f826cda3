//! ACKs and NACKs, and what they change.

use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::{Resource, ResourceSet};

use super::client::Client;
use super::dialect::Dialect;
use crate::stream::{ACK_DEADLINE, REMOVAL_GRACE};
use crate::test_resources::{
    cluster, endpoints, listener, listener_of, resource, route_to, secret, set,
};

in_both_variants! {
    unchanged_set_and_acks_trigger_no_push,
    ack_updates_the_acked_versions,
    changes_during_a_push_are_sent_once_in_newest_version,
    change_reverted_during_a_push_is_not_pushed_again,
    request_with_stale_nonce_only_changes_subscriptions,
    nonce_acks_only_its_own_type,
    nacked_push_is_bisected_and_bad_resource_not_resent,
    nack_bisection_does_not_delay_other_resources,
    bisected_listener_waiting_for_cluster_does_not_delay_others,
    removal_waits_for_grace_after_nack_of_referring_resource,
    late_acks_make_progress_without_repeated_pushes,
    nacked_endpoints_are_resent_one_by_one,
    reverted_nacked_change_resends_the_old_version,
    nack_of_one_type_does_not_stall_other_types,
    nacked_resource_can_still_be_removed,
    nack_ends_when_the_resource_leaves_the_set,
    nacked_resource_is_sent_again_only_on_retry,
    bisected_resources_changed_meanwhile_converge_to_new_set,
}

/// R21.
fn unchanged_set_and_acks_trigger_no_push<V: Dialect>() {
    let all = set([cluster("a", 1), endpoints("a", 1), listener("l", 1)]);
    let mut client = Client::<V>::new();
    client.publish(&all);
    client.subscribe_to(&all);
    client.ack_all();
    assert_eq!(client.take_pushes(), ["CDS +a", "EDS +a", "SDS", "RDS", "LDS +l"]);
    client.publish(&all);
    client.publish(&set([cluster("a", 1), endpoints("a", 1), listener("l", 1)]));
    assert!(client.take_pushes().is_empty());
}

/// R10, R16.
fn ack_updates_the_acked_versions<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([secret("s", 1), cluster("a", 1), cluster("b", 1)]));
    client.publish(&set([secret("s", 2), cluster("b", 2)]));
    assert!(client.take_ack_reports().is_empty());
    assert_eq!(client.stream.acked(Secret).get("s"), Some(secret("s", 1).version()));
    client.ack(Secret);
    assert_eq!(client.take_ack_reports(), ["SDS s"]);
    assert_eq!(client.stream.acked(Secret).get("s"), Some(secret("s", 2).version()));
    assert_eq!(client.stream.acked(Cluster).get("b"), Some(cluster("b", 1).version()));
    client.ack(Cluster);
    assert_eq!(client.take_ack_reports(), ["CDS b"]);
    assert_eq!(client.stream.acked(Cluster).get("b"), Some(cluster("b", 2).version()));
    assert!(client.stream.acked(Cluster).contains_key("a"), "it is still to be removed");
    client.ack(Cluster);
    assert_eq!(client.take_ack_reports(), ["CDS a"]);
    assert!(!client.stream.acked(Cluster).contains_key("a"), "it is gone");
}

/// R43: there is no queue of old states, because a type has one push in flight.
fn changes_during_a_push_are_sent_once_in_newest_version<V: Dialect>() {
    for of in ResourceType::ALL {
        let mut client = Client::<V>::settled(&set([resource(of, "x", 1)]));
        for content in 2..=5 {
            client.publish(&set([resource(of, "x", content)]));
        }
        let first = client.take_pushes();
        assert!(matches!(&first[..], [push] if push.ends_with("DS +x")), "{first:?}");
        client.ack(of);
        assert_eq!(client.take_pushes(), first);
        assert_eq!(client.open[0].resources, [resource(of, "x", 5)]);
        client.ack(of);
        assert!(client.take_pushes().is_empty());
    }
}

/// R21.
fn change_reverted_during_a_push_is_not_pushed_again<V: Dialect>() {
    for of in ResourceType::ALL {
        let mut client = Client::<V>::settled(&set([resource(of, "x", 1)]));
        for content in [2, 3, 2] {
            client.publish(&set([resource(of, "x", content)]));
        }
        client.ack_all();
        let pushes = client.take_pushes();
        assert!(matches!(&pushes[..], [push] if push.ends_with("DS +x")), "{pushes:?}");
    }
}

/// Rule 9, R13, R17, A32: the push and the requests have crossed. (A state-of-the-world server
/// answers the request after the stale ones, with all names: R14.)
fn request_with_stale_nonce_only_changes_subscriptions<V: Dialect>() {
    for (nonce, error) in [
        ("", None),
        ("1", Some("stale")),
        ("999", Some("stale")),
        ("999", None),
        ("no number", None),
    ] {
        let mut client = Client::<V>::settled(&set([secret("s", 1), secret("t", 1)]));
        client.publish(&set([secret("s", 2), secret("t", 1), secret("u", 1)]));
        assert_eq!(client.take_pushes(), ["SDS +s"]);
        for _ in 0..2 {
            let request = V::change(&mut client, Secret, &["u"], &[]);
            client.request(&V::answering(request, nonce, error));
        }
        assert!(
            client.take_pushes().is_empty(),
            "the push of s is still in flight, and not NACKed"
        );
        client.ack(Secret);
        assert_eq!(client.take_pushes(), ["SDS +u"], "{nonce:?}");
    }
}

/// R4, R16, A32.
fn nonce_acks_only_its_own_type<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([cluster("a", 1), listener("l", 1)]));
    client.publish(&set([cluster("a", 2), cluster("b", 1), listener_of("l", 2, &["b"])]));
    let nonce = client.open[0].nonce.to_string();
    client.answer(Listener, &nonce, None);
    assert_eq!(client.take_pushes(), ["CDS +a +b"], "the clusters are not ACKed");
}

/// Rule 5, R19, A42: which of several resources is bad is unknown, and found by halves.
fn nacked_push_is_bisected_and_bad_resource_not_resent<V: Dialect>() {
    let all =
        |bad, c| set([cluster("old", 1), cluster("a", 1), cluster("bad", bad), cluster("c", c)]);
    let mut client = Client::<V>::settled(&set([cluster("old", 1), cluster("c", 1)]));
    client.publish(&all(1, 2));
    client.nack(Cluster, "one is bad");
    client.nack(Cluster, "here");
    client.ack(Cluster);
    client.nack(Cluster, "this one");
    client.ack(Cluster);
    assert_eq!(
        client.take_pushes(),
        [
            "CDS +a +bad +c",
            "CDS bisecting: a bad c (one is bad)",
            "CDS +a +bad",
            "CDS bisecting: a bad (here)",
            "CDS +a",
            "CDS +bad",
            "CDS nacked: bad (this one)",
            "CDS +c",
        ]
    );
    assert_eq!(client.has[&(Cluster, "c".into())], cluster("c", 2));
    client.publish(&all(1, 3));
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +c"]);
    client.publish(&all(2, 3));
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +bad"], "it has changed");
}

/// Rule 5, rule 10, R20: resources outside the bisection go first, and do not wait for it.
fn nack_bisection_does_not_delay_other_resources<V: Dialect>() {
    for of in [Cluster, Listener, Secret] {
        let all = |l, x| set([resource(of, "l", l), resource(of, "m", l), resource(of, "x", x)]);
        let mut client = Client::<V>::settled(&all(1, 1));
        client.publish(&all(2, 1));
        client.nack(of, "one is bad");
        client.publish(&all(2, 2));
        client.ack(of);
        assert_eq!(client.has[&(of, "l".into())], resource(of, "l", 2), "a half is tried");
        assert_eq!(client.has[&(of, "x".into())], resource(of, "x", 1));
        client.ack(of);
        assert_eq!(client.has[&(of, "x".into())], resource(of, "x", 2));
        assert_eq!(client.has[&(of, "m".into())], resource(of, "m", 1), "the other half is last");
        client.ack(of);
        assert_eq!(client.has[&(of, "m".into())], resource(of, "m", 2));
    }
}

/// Rule 5, R54: a bisected listener that must wait delays no other.
fn bisected_listener_waiting_for_cluster_does_not_delay_others<V: Dialect>() {
    let all = |others: &[&str], x| {
        [listener("l", 2), listener_of("m", 2, others), listener("x", x), cluster("a", 1)]
    };
    let mut client =
        Client::<V>::settled(&set([listener("l", 1), listener("m", 1), listener("x", 1)]));
    client.publish(&set([listener("l", 2), listener("m", 2), listener("x", 1)]));
    client.nack(Listener, "one is bad");
    client.ack(Listener);
    client.take_pushes();
    client.publish(&set(all(&["a"], 2)));
    while client.open.iter().any(|push| push.of == Listener) {
        client.ack(Listener);
    }
    assert_eq!(client.has[&(Listener, "x".into())], listener("x", 2));
    client.ack_all();
    assert_eq!(client.has[&(Listener, "m".into())], listener_of("m", 2, &["a"]));
}

/// Rule 5, R53: the last ACKed version of a NACKed resource may name a resource that is to be
/// removed. The publisher has a moment to keep it.
fn removal_waits_for_grace_after_nack_of_referring_resource<V: Dialect>() {
    let old = [cluster("a", 1), route_to("r", 1, &["a"])];
    let new = |others: [Arc<Resource>; 2]| set(others);
    for is_kept in [true, false] {
        let mut client = Client::<V>::settled(&set(old.clone()));
        client.publish(&new([cluster("b", 1), route_to("r", 2, &["b"])]));
        client.ack(Cluster);
        client.nack(Route, "no");
        assert_eq!(client.take_pushes(), ["CDS +b", "RDS +r", "RDS nacked: r (no)"]);
        if is_kept {
            let mut kept = new([cluster("b", 1), route_to("r", 2, &["b"])]);
            kept.insert(cluster("a", 1));
            client.publish(&kept);
        }
        client.pass(REMOVAL_GRACE);
        assert_eq!(client.take_pushes(), if is_kept { &[][..] } else { &["CDS -a"] });
    }
}

/// Rule 10: an ACK that is always late is still an ACK.
fn late_acks_make_progress_without_repeated_pushes<V: Dialect>() {
    let late = ACK_DEADLINE + ACK_DEADLINE / 8;
    for of in [Cluster, Listener] {
        let mut client = Client::<V>::settled(&set([resource(of, "x", 1)]));
        client.publish(&set([resource(of, "x", 2)]));
        client.pass(late);
        client.log.clear();
        client.publish(&set([resource(of, "x", 2), resource(of, "y", 1)]));
        client.pass(ACK_DEADLINE * 10);
        let pushes = client.log.iter().filter(|push| push.of == of).count();
        assert_eq!(pushes, 1, "nothing is sent again and again");
        client.ack_all();
        assert!(client.stream.acked(of).contains_key("y"));
    }
}

/// Rule 5, R19.
fn nacked_endpoints_are_resent_one_by_one<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.publish(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.nack(Endpoint, "one is bad");
    client.nack(Endpoint, "this one");
    client.ack(Endpoint);
    assert_eq!(
        client.take_pushes(),
        [
            "EDS +a +b",
            "EDS bisecting: a b (one is bad)",
            "EDS +a",
            "EDS nacked: a (this one)",
            "EDS +b",
        ]
    );
}

/// Rule 5: Envoy does not report what it applied of a NACKed push, so the old version is sent
/// again.
fn reverted_nacked_change_resends_the_old_version<V: Dialect>() {
    for of in ResourceType::ALL {
        let mut client = Client::<V>::settled(&set([resource(of, "x", 1)]));
        client.publish(&set([resource(of, "x", 2)]));
        client.nack(of, "no");
        assert!(client.open.is_empty());
        client.publish(&set([resource(of, "x", 1)]));
        assert_eq!(client.open[0].resources, [resource(of, "x", 1)]);
    }
}

/// R20.
fn nack_of_one_type_does_not_stall_other_types<V: Dialect>() {
    let all = |n| [cluster("a", n), listener_of("l", n, &["b", "s"]), secret("s", n)];
    let mut client = Client::<V>::settled(&set(all(1)));
    let mut new = set(all(2));
    new.insert(cluster("b", 1));
    client.publish(&new);
    assert_eq!(client.take_pushes(), ["SDS +s", "CDS +a +b"]);
    client.nack(Secret, "no");
    client.nack(Cluster, "one is bad");
    client.ack(Cluster);
    client.nack(Cluster, "no");
    // It has the earlier secret, and the cluster will not come.
    assert_eq!(
        client.take_pushes(),
        [
            "SDS nacked: s (no)",
            "CDS bisecting: a b (one is bad)",
            "CDS +a",
            "CDS +b",
            "CDS nacked: b (no)",
            "LDS +l"
        ]
    );
}

/// R47: a NACK is of a version, not of the name.
fn nacked_resource_can_still_be_removed<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([cluster("a", 1)]));
    client.publish(&set([cluster("a", 2)]));
    client.nack(Cluster, "no");
    client.take_pushes();
    client.publish(&ResourceSet::default());
    client.ack_all();
    // A cluster that is removed last stays in the state until then.
    assert_eq!(client.take_pushes(), V::either(&["CDS -a"][..], &["CDS", "CDS -a"]));
    assert!(client.has.is_empty());
}

/// R19: a resource that leaves the set is not NACKed any more, whatever the client has of it. If it comes back, it
/// is sent, so that the client's answer is reported again.
fn nack_ends_when_the_resource_leaves_the_set<V: Dialect>() {
    for of in [Cluster, Endpoint, Listener, Route, Secret] {
        for earlier in [ResourceSet::default(), set([resource(of, "x", 1)])] {
            let mut client = Client::<V>::settled(&earlier);
            if !of.allows_wildcard() && !earlier.contains(of, "x") {
                client.subscribe(of, &["x"]);
            }
            client.publish(&set([resource(of, "x", 2)]));
            client.nack(of, "no");
            client.publish(&ResourceSet::default());
            client.ack_all();
            client.pass(REMOVAL_GRACE);
            client.ack_all();
            client.take_pushes();
            client.publish(&set([resource(of, "x", 2)]));
            client.nack(of, "no");
            let pushes = client.take_pushes();
            let last = pushes.last().map(String::as_str).unwrap_or_default();
            assert!(last.ends_with("DS nacked: x (no)"), "{of} after {earlier:?}: {pushes:?}");
        }
    }
}

/// docs/decisions/0052: the exception to R19, for a reason on the client's machine that is gone.
fn nacked_resource_is_sent_again_only_on_retry<V: Dialect>() {
    for of in [Cluster, Endpoint, Listener, Route, Secret] {
        let mut client = Client::<V>::settled(&set([resource(of, "x", 1)]));
        client.publish(&set([resource(of, "x", 2)]));
        client.nack(of, "Address already in use");
        client.take_pushes();
        client.publish(&set([resource(of, "x", 2), resource(Cluster, "other", 1)]));
        client.ack_all();
        assert!(
            !client.take_pushes().iter().any(|line| line.ends_with(" +x")),
            "{of}: not without a retry"
        );
        for attempt in ["fails", "succeeds"] {
            client.retry(of, "x");
            assert!(
                client.take_pushes().iter().any(|line| line.ends_with("DS +x")),
                "{of}: {attempt}"
            );
            if attempt == "fails" {
                client.nack(of, "Address already in use");
            }
            client.ack_all();
        }
        let has = client.has.get(&(of, Arc::from("x")));
        assert_eq!(has, Some(&resource(of, "x", 2)));
        client.retry(of, "x");
        assert!(client.take_pushes().is_empty(), "it is not NACKed any more");
    }
}

/// Rule 5, R63: whatever the client has applied of the push that it NACKed.
fn bisected_resources_changed_meanwhile_converge_to_new_set<V: Dialect>() {
    let takes_nothing = |_: &Resource| true;
    let takes_what_is_good = |one: &Resource| *one == *cluster("b", 1);
    for is_bad in [takes_nothing, takes_what_is_good] {
        let mut client = Client::<V>::settled(&ResourceSet::default());
        client.publish(&set([cluster("a", 1), cluster("b", 1), cluster("c", 1)]));
        client.publish(&set([cluster("b", 2), cluster("c", 1)]));
        client.nack_in_part(Cluster, is_bad);
        client.ack_all();
        client.pass(REMOVAL_GRACE);
        client.ack_all();
        let has: Vec<_> = client.has.into_values().collect();
        assert_eq!(has, [cluster("b", 2), cluster("c", 1)]);
    }
}
