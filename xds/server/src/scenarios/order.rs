//! Make before break: the order in which types are pushed.

use std::time::Duration;

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{
    Cluster, Endpoint, ExtensionConfig, Listener, Route, Runtime, Secret,
};

use super::client::Client;
use super::dialect::Dialect;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{
    cluster, endpoints, extension_config, listener, listener_of, route, route_to, runtime, secret,
    set, urgent,
};

in_both_variants! {
    runtime_layers_and_extension_configs_are_sent_first,
    runtime_layer_is_answered_before_all_other_types,
    listener_waits_for_ack_of_referenced_extension_config,
    extension_config_is_removed_after_its_listener,
    endpoints_follow_added_or_changed_cluster_without_request,
    endpoints_are_never_sent_before_their_cluster,
    endpoints_do_not_wait_for_pending_change_of_known_cluster,
    endpoints_do_not_wait_for_unsubscribed_or_removed_clusters,
    empty_endpoints_are_sent_as_resource_not_as_removal,
    listeners_and_routes_wait_for_ack_of_referenced_clusters,
    resource_referring_only_to_known_clusters_does_not_wait,
    urgent_resources_do_not_wait_for_clusters,
    first_listeners_wait_for_cluster_and_secret_acks,
    cluster_with_nacked_change_still_satisfies_references,
    listener_waiting_for_late_cluster_does_not_delay_removals,
    route_waits_for_cluster_that_returns_during_its_removal,
    unacked_clusters_delay_only_resources_that_refer_to_them,
    unacked_endpoints_do_not_delay_removals,
    missing_ack_delays_independent_resources_at_most_15_seconds,
    cluster_removal_waits_for_listener_and_route_acks,
    unacked_removal_delays_the_next_one_by_15_seconds,
    cluster_removal_waits_15_seconds_for_a_missing_ack,
    resource_readded_before_its_removal_is_not_removed,
    secrets_are_sent_without_waiting,
    listener_waits_for_ack_of_referenced_secrets,
    bisected_listener_waits_for_referenced_cluster,
    urgent_bisected_listener_does_not_wait_for_cluster,
}

/// Rule 1, R55: Envoy warms for 15 s otherwise.
fn endpoints_follow_added_or_changed_cluster_without_request<V: Dialect>() {
    let both = |a| [cluster("a", a), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)];
    let mut client = Client::<V>::settled(&set(both(1)));
    client.subscribe(Endpoint, &["c"]);
    assert_eq!(client.take_pushes(), V::either(&["EDS -c"][..], &[]), "that c is not there (R37)");
    client.ack_all();
    let mut all = set(both(2));
    all.insert(cluster("c", 1));
    all.insert(endpoints("c", 1));
    client.publish(&all);
    assert_eq!(client.take_pushes(), ["CDS +a +c", "EDS +a +c"]);
}

/// Rule 2, R51: Envoy would accept and discard them.
fn endpoints_are_never_sent_before_their_cluster<V: Dialect>() {
    let mut client = Client::<V>::settled(&ResourceSet::default());
    client.subscribe(Endpoint, &["b"]);
    assert_eq!(client.take_pushes(), V::either(&["EDS -b"][..], &[]));
    client.ack_all();
    client.publish(&set([cluster("a", 1)]));
    assert_eq!(client.take_pushes(), ["CDS +a"]);
    client.publish(&set([cluster("a", 1), cluster("b", 1), endpoints("b", 1)]));
    assert!(
        client.take_pushes().is_empty(),
        "cluster b waits for the answer about a, and so do its endpoints"
    );
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +b", "EDS +b"]);
}

/// Rule 2, rule 10: Envoy ACKs a push of clusters when they are warm, so their endpoints must not
/// wait for that.
fn endpoints_do_not_wait_for_pending_change_of_known_cluster<V: Dialect>() {
    let mut client = Client::<V>::settled(&ResourceSet::default());
    client.publish(&set([cluster("a", 1), endpoints("a", 1)]));
    client.publish(&set([cluster("a", 2), endpoints("a", 2)]));
    assert_eq!(client.take_pushes(), ["CDS +a"]);
    client.subscribe(Endpoint, &["a"]);
    assert_eq!(client.take_pushes(), ["EDS +a"]);
    client.ack(Endpoint);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +a", "EDS +a"]);
}

/// Rule 2 covers only clusters that are still to be sent.
fn endpoints_do_not_wait_for_unsubscribed_or_removed_clusters<V: Dialect>() {
    let mut client = Client::<V>::new();
    client.subscribe(Endpoint, &["a"]);
    client.publish(&set([cluster("a", 1), endpoints("a", 1)]));
    assert_eq!(client.take_pushes(), ["EDS +a"], "it is subscribed to endpoints only");

    let mut client = Client::<V>::settled(&set([cluster("a", 1), endpoints("a", 1)]));
    client.publish(&set([endpoints("a", 2)]));
    assert_eq!(client.take_pushes(), ["EDS +a", "CDS -a"]);
}

/// Rule 4: Envoy ignores a removal of endpoints.
fn empty_endpoints_are_sent_as_resource_not_as_removal<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([cluster("a", 1), endpoints("a", 1)]));
    client.publish(&set([cluster("a", 1), endpoints("a", 0)]));
    assert_eq!(client.take_pushes(), ["EDS +a"]);
    client.ack(Endpoint);
    assert!(client.take_pushes().is_empty());
    assert_eq!(client.has[&(Endpoint, "a".into())], endpoints("a", 0));
}

/// Rule 6, R52, R54: Envoy does not warm routes. A listener warms until it has its routes.
fn listeners_and_routes_wait_for_ack_of_referenced_clusters<V: Dialect>() {
    let old = [cluster("a", 1), endpoints("a", 1), listener("l", 1), route_to("r", 1, &["a"])];
    let mut client = Client::<V>::settled(&set(old));
    client.publish(&set([
        cluster("a", 2),
        endpoints("a", 1),
        cluster("b", 1),
        listener_of("l", 2, &["b"]),
        listener_of("m", 1, &["s"]),
        route_to("r", 2, &["a", "b"]),
        route_to("s", 1, &["b"]),
    ]));
    assert_eq!(client.take_pushes(), ["CDS +a +b", "EDS +a"]);
    client.subscribe(Route, &["s"]);
    client.ack(Endpoint);
    assert!(client.take_pushes().is_empty());
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["LDS +l +m", "RDS +r +s"]);
}

/// Rule 10: a withdrawal of access must not wait until some cluster is warm.
fn resource_referring_only_to_known_clusters_does_not_wait<V: Dialect>() {
    let all = |n| [cluster("a", n), listener_of("l", n, &["a"]), route_to("r", n, &["a"])];
    let mut client = Client::<V>::settled(&set(all(1)));
    let mut new = set(all(2));
    new.insert(cluster("b", 1));
    client.publish(&new);
    assert_eq!(
        client.take_pushes(),
        ["CDS +a +b", "LDS +l", "RDS +r"],
        "it has a, in some version"
    );
}

/// Rule 10: a withdrawal of access waits for no cluster that the same resource names elsewhere.
fn urgent_resources_do_not_wait_for_clusters<V: Dialect>() {
    let all = |n, names: &[&str]| {
        let (l, r) = (listener_of("l", n, names), route_to("r", n, names));
        [cluster("a", 1), urgent(&l), urgent(&r), secret("s", n)]
    };
    let mut client = Client::<V>::settled(&set(all(1, &["a", "s"])));
    let mut new = set(all(2, &["a", "b", "s"]));
    new.insert(cluster("b", 1));
    client.publish(&new);
    assert_eq!(
        client.take_pushes(),
        ["SDS +s", "CDS +b", "RDS +r"],
        "but a listener for its callers"
    );
    client.ack(Secret);
    assert_eq!(client.take_pushes(), ["LDS +l"]);
}

/// Rule 5, R54: a cluster of which another version is NACKed still exists.
fn cluster_with_nacked_change_still_satisfies_references<V: Dialect>() {
    let mut client =
        Client::<V>::settled(&set([cluster("a", 1), cluster("b", 1), route_to("r", 1, &["a"])]));
    client.publish(&set([cluster("a", 2), cluster("b", 2), route_to("r", 1, &["a"])]));
    client.nack(Cluster, "one is bad");
    client.publish(&set([cluster("a", 2), cluster("b", 2), route_to("r", 2, &["a", "b"])]));
    assert_eq!(
        client.take_pushes(),
        ["CDS +a +b", "CDS bisecting: a b (one is bad)", "CDS +a", "RDS +r"]
    );
}

/// R20, R53: a client that stops to ACK clusters keeps removed ones for 15 s.
fn listener_waiting_for_late_cluster_does_not_delay_removals<V: Dialect>() {
    let old = [cluster("a", 1), cluster("x", 1), listener("l", 1)];
    let mut client = Client::<V>::settled(&set(old));
    client.publish(&set([cluster("a", 1), cluster("b", 1), listener_of("l", 2, &["b"])]));
    assert_eq!(client.take_pushes(), ["CDS +b"]);
    client.pass(ACK_DEADLINE);
    assert_eq!(client.take_pushes(), ["CDS late", "CDS -x"]);
}

/// R52, R56: with its first listeners a starting client counts itself ready.
fn first_listeners_wait_for_cluster_and_secret_acks<V: Dialect>() {
    let all = set([
        cluster("a", 1),
        secret("s", 1),
        listener("l", 1),
        urgent(&listener_of("m", 1, &["s"])),
    ]);
    let mut client = Client::<V>::new();
    client.publish(&all);
    client.subscribe(Cluster, &[]);
    client.subscribe(Secret, &["s"]);
    client.subscribe(Listener, &[]);
    assert_eq!(client.take_pushes(), ["CDS +a", "SDS +s"]);
    client.ack(Cluster);
    assert!(client.take_pushes().is_empty());
    client.ack(Secret);
    assert_eq!(client.take_pushes(), ["LDS +l +m"]);
}

/// R54, R57: a cluster that returns while it is being removed does not exist yet when the client
/// reads what was sent meanwhile.
fn route_waits_for_cluster_that_returns_during_its_removal<V: Dialect>() {
    let old = set([cluster("a", 1), route_to("r", 1, &["a"])]);
    for answers_in_time in [true, false] {
        let mut client = Client::<V>::settled(&old);
        client.publish(&set([route("r", 2)]));
        client.ack(Route);
        assert_eq!(client.take_pushes(), ["RDS +r", "CDS -a"]);
        if !answers_in_time {
            client.pass(ACK_DEADLINE);
        }
        client.publish(&old);
        let (late, in_time) = (["CDS late", "CDS +a"], []);
        assert_eq!(client.take_pushes(), if answers_in_time { &in_time[..] } else { &late });
        client.ack_all();
        let pushes = client.take_pushes();
        assert_eq!(pushes.last().map(String::as_str), Some("RDS +r"), "{pushes:?}");
        assert_eq!(client.has[&(Route, "r".into())], route_to("r", 1, &["a"]));
    }
}

/// Rule 8, rule 10, invariant 6: after 15 s only resources wait that name an unACKed one.
fn missing_ack_delays_independent_resources_at_most_15_seconds<V: Dialect>() {
    let all = set([cluster("a", 1), listener("l", 1), route("r", 1), route_to("s", 1, &["a"])]);
    let mut client = Client::<V>::new();
    client.publish(&all);
    client.subscribe_to(&all);
    client.pass(Duration::from_millis(14_999));
    assert_eq!(
        client.take_pushes(),
        ["CDS +a", "EDS", "SDS"],
        "with its first answers it is ready"
    );
    client.ack(Endpoint);
    client.ack(Secret);
    client.pass(Duration::from_millis(1));
    assert_eq!(client.take_pushes(), ["CDS late", "LDS +l", "RDS +r"]);
    client.ack(Listener);
    client.ack(Route);
    client.pass(ACK_DEADLINE * 10);
    assert!(client.take_pushes().is_empty(), "it is reported once");
    assert_eq!(client.stream.deadline(), None);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["RDS +s"], "a late ACK counts");
    assert!(client.stream.acked(Cluster).contains_key("a"));
}

/// Rule 8, rule 10: a client that ACKs no clusters, while they go on changing.
fn unacked_clusters_delay_only_resources_that_refer_to_them<V: Dialect>() {
    let all = |n| set([cluster("a", n), route("r", n), route_to("s", n, &["b"]), cluster("b", n)]);
    let mut client = Client::<V>::settled(&set([cluster("a", 1), route("r", 1), route("s", 1)]));
    for n in 2..9 {
        client.publish(&all(n));
        client.pass(ACK_DEADLINE * 2 / 3);
        client.take_pushes();
        client.ack(Route);
        assert_eq!(client.has[&(Route, "r".into())], route("r", n));
        assert_eq!(client.has[&(Route, "s".into())], route("s", 1));
    }
    // Nor do clusters delay each other.
    let newest = client.open.iter().rfind(|push| push.of == Cluster).unwrap();
    assert!(newest.resources.contains(&cluster("a", 7)), "{newest:?}");
}

/// Rule 10, R53: endpoints change all the time.
fn unacked_endpoints_do_not_delay_removals<V: Dialect>() {
    let all = |n| [cluster("a", 1), endpoints("a", n)];
    let mut old = set(all(1));
    old.insert(cluster("b", 1));
    let mut client = Client::<V>::settled(&old);
    client.publish(&set([cluster("a", 1), endpoints("a", 2), cluster("b", 1)]));
    client.publish(&set(all(3)));
    assert_eq!(client.take_pushes(), ["EDS +a", "CDS -b"]);
}

/// R53.
fn cluster_removal_waits_for_listener_and_route_acks<V: Dialect>() {
    let old = set([cluster("a", 1), cluster("b", 1), listener("l", 1), route("r", 1)]);
    let mut client = Client::<V>::settled(&old);
    client.publish(&set([cluster("b", 2), listener("l", 2), route("r", 2)]));
    assert_eq!(client.take_pushes(), ["CDS +b", "LDS +l", "RDS +r"]);
    client.ack(Cluster);
    client.ack(Listener);
    assert!(client.take_pushes().is_empty());
    client.ack(Route);
    assert_eq!(client.take_pushes(), ["CDS -a"]);
}

/// Rule 10, R53.
fn unacked_removal_delays_the_next_one_by_15_seconds<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([cluster("a", 1), listener("l", 1)]));
    client.publish(&ResourceSet::default());
    client.pass(ACK_DEADLINE);
    assert_eq!(client.take_pushes(), ["LDS -l", "LDS late", "CDS -a"]);
}

/// Rule 10, R53.
fn cluster_removal_waits_15_seconds_for_a_missing_ack<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([cluster("a", 1), route("r", 1)]));
    client.publish(&set([route("r", 2)]));
    client.pass(ACK_DEADLINE);
    assert_eq!(client.take_pushes(), ["RDS +r", "RDS late", "CDS -a"]);
}

/// R53, R57: an announced removal may be cancelled.
fn resource_readded_before_its_removal_is_not_removed<V: Dialect>() {
    let both = set([cluster("a", 1), listener("l", 1)]);
    let mut client = Client::<V>::settled(&both);
    client.publish(&ResourceSet::default());
    client.publish(&set([cluster("a", 1)]));
    client.ack(Listener);
    assert_eq!(client.take_pushes(), ["LDS -l"]);
    client.publish(&both);
    assert_eq!(client.take_pushes(), ["LDS +l"]);

    let mut client = Client::<V>::settled(&set([cluster("a", 1), route("r", 1)]));
    client.publish(&set([route("r", 2)]));
    client.publish(&set([cluster("a", 1), route("r", 2)]));
    client.ack(Route);
    assert_eq!(client.take_pushes(), ["RDS +r"]);
}

/// R56: a secret must arrive before the resources that need it.
fn secrets_are_sent_without_waiting<V: Dialect>() {
    let mut client = Client::<V>::settled(&set([cluster("a", 1), secret("s", 1)]));
    client.publish(&set([cluster("a", 2), secret("s", 1)]));
    client.publish(&set([cluster("a", 2), secret("s", 2)]));
    assert_eq!(client.take_pushes(), ["CDS +a", "SDS +s"]);
}

/// Rule 6, R56: after a withdrawal, a recreated filter chain must not start with the old list of
/// callers.
fn listener_waits_for_ack_of_referenced_secrets<V: Dialect>() {
    let all = |s, l, m, r| {
        set([secret("s", s), listener_of("l", l, &["s"]), listener("m", m), route("r", r)])
    };
    let mut client = Client::<V>::settled(&all(1, 1, 1, 1));
    client.publish(&all(2, 1, 1, 1));
    assert_eq!(client.take_pushes(), ["SDS +s"]);
    // Before the ACK: another list, and a recreated chain.
    client.publish(&all(3, 2, 2, 2));
    assert_eq!(client.take_pushes(), ["LDS +m", "RDS +r"], "the others wait for nothing of this");
    client.ack(Route);
    client.ack(Listener);
    client.ack(Secret);
    assert_eq!(client.take_pushes(), ["SDS +s"]);
    client.ack(Secret);
    assert_eq!(client.take_pushes(), ["LDS +l"]);
    client.ack(Listener);
    // Not forever: the change may withdraw access, and Envoy itself waits for its secrets.
    client.publish(&all(4, 3, 3, 2));
    client.pass(ACK_DEADLINE);
    assert_eq!(client.take_pushes(), ["SDS +s", "LDS +m", "SDS late", "LDS late", "LDS +l"]);
}

/// A client that has one version of a listener, and NACKs a push with another version of it in
/// part. By then the first version is published again, with the cluster that it names.
fn client_with_bisected_listener<V: Dialect>(is_urgent: bool) -> Client<V> {
    let bad = listener("bad", 1);
    let old = listener_of("l", 1, &["a"]);
    let mut client = Client::<V>::settled(&set([old.clone()]));
    client.publish(&set([listener("l", 2), bad.clone()]));
    assert_eq!(client.take_pushes(), ["LDS +bad +l"]);
    let old = if is_urgent { urgent(&old) } else { old };
    client.publish(&set([old, bad.clone(), cluster("a", 1)]));
    assert_eq!(client.take_pushes(), ["CDS +a"]);
    client.nack_in_part(Listener, |one| one == &*bad);
    client
}

/// Rule 5, R54, R57: the server does not know which version the client has. In the state of the
/// world it cannot omit the listener either.
fn bisected_listener_waits_for_referenced_cluster<V: Dialect>() {
    let mut client = client_with_bisected_listener::<V>(false);
    let half = "LDS bisecting: bad l (in part)";
    assert_eq!(client.take_pushes(), V::either(&[half, "LDS +bad"][..], &[half]));
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), V::either(&[][..], &["LDS +bad +l"]));
    client.nack(Listener, "no");
    assert_eq!(client.take_pushes(), ["LDS nacked: bad (no)", "LDS +l"]);
    client.ack_all();
    assert_eq!(client.has[&(Listener, "l".into())], listener_of("l", 1, &["a"]));
}

/// A withdrawal does not wait for a warming cluster.
fn urgent_bisected_listener_does_not_wait_for_cluster<V: Dialect>() {
    let mut client = client_with_bisected_listener::<V>(true);
    client.nack_in_part(Listener, |one| one == &*listener("bad", 1));
    client.ack(Listener);
    assert_eq!(client.has[&(Listener, "l".into())], urgent(&listener_of("l", 1, &["a"])));
    assert!(!client.has.contains_key(&(Cluster, "a".into())));
}

/// R66: a withdrawal is a runtime key, and the filter that reads it must have the caller's entry
/// before the list of callers admits the caller.
fn runtime_layers_and_extension_configs_are_sent_first<V: Dialect>() {
    let all = |n| {
        let filter = [extension_config("e", n), runtime("w", n), secret("s", n)];
        let mut all = set([cluster("a", n), listener_of("l", n, &["e", "s"])]);
        for one in filter {
            all.insert(one);
        }
        all
    };
    let mut client = Client::<V>::settled(&all(1));
    client.publish(&all(2));
    assert_eq!(client.take_pushes(), ["RTDS +w", "ECDS +e", "SDS +s", "CDS +a"]);
    client.ack_all();
    assert_eq!(client.take_pushes(), ["LDS +l"]);
}

/// R66: Envoy requests its runtime layers before anything else, and starts after 15 s without an
/// answer.
fn runtime_layer_is_answered_before_all_other_types<V: Dialect>() {
    let mut client = Client::<V>::new();
    client.publish(&set([cluster("a", 1), runtime("w", 1)]));
    client.subscribe(Runtime, &["w"]);
    assert_eq!(client.take_pushes(), ["RTDS +w"]);
    // A client whose set has no such layer gets an answer too.
    let mut client = Client::<V>::new();
    client.publish(&set([cluster("a", 1)]));
    client.subscribe(Runtime, &["w"]);
    assert_eq!(client.take_pushes(), [V::either("RTDS -w", "RTDS")]);
    client.ack(Runtime);
    assert!(client.take_pushes().is_empty());
}

/// R65: like [`listener_waits_for_ack_of_referenced_secrets`].
fn listener_waits_for_ack_of_referenced_extension_config<V: Dialect>() {
    let all =
        |e, l, m| set([extension_config("e", e), listener_of("l", l, &["e"]), listener("m", m)]);
    let mut client = Client::<V>::settled(&all(1, 1, 1));
    client.publish(&all(2, 2, 2));
    assert_eq!(client.take_pushes(), ["ECDS +e", "LDS +m"]);
    client.ack(Listener);
    client.ack(ExtensionConfig);
    assert_eq!(client.take_pushes(), ["LDS +l"]);
    client.ack(Listener);
    client.publish(&all(3, 3, 2));
    client.pass(ACK_DEADLINE);
    assert_eq!(client.take_pushes(), ["ECDS +e", "ECDS late", "LDS +l"]);
    // The names of configurations and secrets are apart.
    let other = set([secret("e", 1), listener_of("l", 1, &["e"]), extension_config("f", 1)]);
    let mut client = Client::<V>::settled(&other);
    let mut other = other;
    other.insert(extension_config("f", 2));
    other.insert(listener_of("l", 2, &["e"]));
    client.publish(&other);
    assert_eq!(client.take_pushes(), ["ECDS +f", "LDS +l"]);
}

/// R53, R65: without its configuration, a filter in use closes every new connection. In the state of
/// the world, a configuration is never removed.
fn extension_config_is_removed_after_its_listener<V: Dialect>() {
    let old = set([extension_config("e", 1), listener_of("l", 1, &["e"])]);
    let mut client = Client::<V>::settled(&old);
    client.publish(&set([listener("l", 2)]));
    assert_eq!(client.take_pushes(), ["LDS +l"]);
    client.ack(Listener);
    assert_eq!(client.take_pushes(), V::either(&["ECDS -e"][..], &[]));
}
