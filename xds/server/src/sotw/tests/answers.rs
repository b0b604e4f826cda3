//! ACKs and NACKs, where one version covers a type, and an unanswered client requests again.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::{ErrorDetail, SotwRequest, Version};

use super::client::Client;
use crate::sotw::SotwOutput;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{cluster, endpoints, listener, listener_of, route, secret, set};

/// R11, R23: the version is that of the content.
#[test]
fn ack_version_is_the_hash_of_acked_resources() {
    let mut client = Client::settled(&set([secret("s", 1), cluster("a", 1)]));
    assert_eq!(client.versions[&Cluster], Version::of_all(&[cluster("a", 1)]));
    client.publish(&set([secret("s", 2), cluster("b", 1)]));
    client.ack_all();
    assert_eq!(client.versions[&Cluster], Version::of_all(&[cluster("b", 1)]));
}

/// R10: by the error, and not by the version.
#[test]
fn request_with_error_is_a_nack_even_with_current_version() {
    let mut client = Client::settled(&set([secret("s", 1)]));
    client.publish(&set([secret("s", 2)]));
    let push = client.open.remove(0);
    let error = Some(ErrorDetail { code: 13, message: "no".to_owned() });
    let version_info = push.version.unwrap().to_string();
    let outputs = client.stream.on_request(
        &SotwRequest {
            version_info,
            nonce: push.nonce.to_string(),
            error,
            ..client.current_request(Secret)
        },
        client.now,
    );
    let [SotwOutput::Nacked(nacked)] = &outputs[..] else { panic!("{outputs:?}") };
    assert!(nacked.is_final);
    assert!(!client.stream.acked(Secret).contains_key("s"), "it is uncertain");
}

/// Rule 9, R13, R14: names dropped by a stale request are dropped, and names added by the next one
/// are sent.
#[test]
fn request_with_stale_nonce_gets_no_response() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1), secret("u", 1)]));
    client.request_names(Secret, &["s", "t"]);
    client.publish(&set([secret("s", 2), secret("t", 1), secret("u", 1)]));
    assert_eq!(client.take_pushes(), ["SDS +s"]);
    // It was written before the client had read the push.
    client.request_names(Secret, &["s", "t", "u"]);
    let error = Some(ErrorDetail { code: 13, message: "stale".to_owned() });
    client.request(&SotwRequest { error, ..client.current_request(Secret) });
    for nonce in ["", "999", "no number"] {
        client.request(&SotwRequest { nonce: nonce.to_owned(), ..client.current_request(Secret) });
    }
    assert!(client.take_pushes().is_empty(), "the push of s is still in flight, and not NACKed");
    client.ack(Secret);
    assert_eq!(client.take_pushes(), ["SDS +u"]);
}

/// Rule 1, R15: Envoy does so when it warms a cluster again.
#[test]
fn repeated_request_resends_endpoints_but_not_listeners() {
    let mut client =
        Client::settled(&set([endpoints("a", 1), endpoints("b", 1), listener("l", 1)]));
    client.repeat_request(Endpoint);
    client.ack(Endpoint);
    assert_eq!(client.take_pushes(), ["EDS +a +b"]);
    client.repeat_request(Listener);
    assert!(client.take_pushes().is_empty(), "listeners and clusters it does not lose");
}

/// R15, A33: a client that sends each of its ACKs twice does not get a push for each.
#[test]
fn repeated_requests_get_one_response_per_referring_push() {
    let all = |n| {
        set([cluster("a", n), endpoints("a", 1), secret("s", 1), listener("l", n), route("r", 1)])
    };
    let mut client = Client::settled(&all(1));
    for of in [Endpoint, Secret, Route] {
        client.repeat_request(of);
        client.ack(of);
        client.take_pushes();
        for _ in 0..3 {
            client.repeat_request(of);
        }
        assert!(client.take_pushes().is_empty(), "{of}");
    }
    client.publish(&all(2));
    client.ack_all();
    assert_eq!(client.take_pushes(), ["CDS +a", "EDS +a", "LDS +l"]);
    for (of, push) in [(Endpoint, "EDS +a"), (Secret, "SDS +s"), (Route, "RDS +r")] {
        client.repeat_request(of);
        client.ack(of);
        client.repeat_request(of);
        assert_eq!(client.take_pushes(), [push]);
    }
}

/// R15: a request before the push of clusters does not use up the one after it.
#[test]
fn repeated_request_during_cluster_push_allows_one_more() {
    let all = |n| set([cluster("a", n), endpoints("b", 1)]);
    let mut client = Client::settled(&all(1));
    client.publish(&all(2));
    client.publish(&all(3));
    client.repeat_request(Endpoint);
    client.ack(Endpoint);
    assert_eq!(client.take_pushes(), ["CDS +a", "EDS +b"]);
    client.ack(Cluster);
    client.repeat_request(Endpoint);
    assert_eq!(client.take_pushes(), ["CDS +a", "EDS +b"]);
}

/// R15, R19: without a response a cluster would warm for 15 s.
#[test]
fn requested_nacked_endpoints_are_sent_in_earlier_version() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.publish(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.nack(Endpoint, "one is bad");
    client.nack(Endpoint, "this one");
    client.ack(Endpoint);
    client.take_pushes();
    client.repeat_request(Endpoint);
    client.ack(Endpoint);
    assert_eq!(client.take_pushes(), ["EDS +a +b"]);
    assert_eq!(client.has[&(Endpoint, "a".into())], endpoints("a", 1), "what it had before");
    client.publish(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.repeat_request(Endpoint);
    client.publish(&set([endpoints("a", 3), endpoints("b", 2)]));
    client.ack(Endpoint);
    assert_eq!(client.take_pushes(), ["EDS +a +b", "EDS +a"]);
}

/// R19, R41: omission means removal, so the earlier version replaces the NACKed one.
#[test]
fn nacked_cluster_is_sent_in_its_last_acked_version() {
    let mut client = Client::settled(&set([cluster("a", 1), cluster("b", 1)]));
    client.publish(&set([cluster("a", 2), cluster("b", 1)]));
    client.nack(Cluster, "no");
    assert_eq!(client.take_pushes(), ["CDS +a", "CDS nacked: a (no)"]);
    client.publish(&set([cluster("a", 2), cluster("b", 2)]));
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +b"]);
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
    // Rule 5: Envoy does not report what it applied of a NACKed push, so it is sent again.
    client.publish(&set([cluster("a", 3), cluster("b", 2)]));
    client.nack(Cluster, "no");
    client.take_pushes();
    client.publish(&set([cluster("a", 1), cluster("b", 2)]));
    assert_eq!(client.take_pushes(), ["CDS"], "nothing but what it may have already");
    assert_eq!(client.open[0].resources, [cluster("a", 1), cluster("b", 2)]);
    client.ack(Cluster);
    client.publish(&ResourceSet::default());
    assert_eq!(client.take_pushes(), ["CDS -a -b"], "and it can be removed");
}

/// Rule 10: a late push may have been NACKed. Its reply is stale once another push has gone out.
#[test]
fn unacked_push_is_repeated_with_the_next_one() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.publish(&set([secret("s", 2), secret("t", 1)]));
    client.pass(ACK_DEADLINE);
    assert_eq!(client.take_pushes(), ["SDS +s", "SDS late"]);
    client.publish(&set([secret("s", 2), secret("t", 2)]));
    assert_eq!(client.take_pushes(), ["SDS +s +t"]);
    client.nack(Secret, "late, and not heard");
    client.ack(Secret);
    assert!(client.take_pushes().is_empty());
    assert_eq!(client.stream.acked(Secret).get("s"), Some(secret("s", 2).version()));
}

/// R19: the client is in the state before its NACK, so the NACKed version is as bad as before.
#[test]
fn ack_of_earlier_version_does_not_lift_a_nack() {
    let mut client = Client::settled(&set([route("r", 1)]));
    client.publish(&set([route("r", 2)]));
    client.nack(Route, "bad");
    client.publish(&set([route("r", 1)]));
    client.ack_all();
    assert_eq!(client.take_pushes(), ["RDS +r", "RDS nacked: r (bad)", "RDS +r"]);
    client.publish(&set([route("r", 2)]));
    assert_eq!(client.take_pushes(), Vec::<String>::new());
    // Another version clears the NACK.
    client.publish(&set([route("r", 3)]));
    client.ack_all();
    client.publish(&set([route("r", 2)]));
    assert_eq!(client.take_pushes(), ["RDS +r", "RDS +r"]);
}

/// R19: on a new stream the server does not know that the client only ACKs what it has had all the
/// time.
#[test]
fn nack_survives_ack_of_earlier_version_after_reconnect() {
    let (good, bad) = (set([route("r", 1)]), set([route("r", 2)]));
    let mut client = Client::settled(&good);
    client.reconnect();
    client.publish(&bad);
    client.resume(Route);
    client.nack(Route, "bad");
    client.publish(&good);
    assert_eq!(client.take_pushes(), ["RDS +r", "RDS nacked: r (bad)", "RDS +r"]);
    client.ack(Route);
    client.publish(&bad);
    assert!(client.take_pushes().is_empty(), "it is still NACKed");
}

/// R41, R54, R57: the last ACKed version names a cluster in flight, and the client may have another
/// version.
#[test]
fn nacked_listener_is_not_sent_or_omitted_before_its_cluster() {
    let (old, new) = (listener_of("l", 1, &["a"]), listener_of("l", 2, &["a"]));
    let mut client = Client::settled(&set([old.clone()]));
    client.publish(&set([new]));
    client.nack(Listener, "l is bad, or something else");
    client.take_pushes();
    client.publish(&set([old, cluster("a", 1)]));
    assert_eq!(client.take_pushes(), ["CDS +a"]);
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["LDS"]);
}
