//! ACKs and NACKs, where one version stands for all, and who is not answered asks again.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::{ErrorDetail, SotwRequest, Version};

use super::client::Client;
use crate::sotw::Output;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{cluster, endpoints, listener, listener_of, route, secret, set};

/// R11, R23: the version is that of the content.
#[test]
fn ack_version_is_the_hash_of_acked_resources() {
    let mut client = Client::settled(&set([secret("s", 1), cluster("a", 1)]));
    assert_eq!(client.versions[&Cluster], Version::of_all(&[cluster("a", 1)]));
    client.give(&set([secret("s", 2), cluster("b", 1)]));
    client.take_all();
    assert_eq!(client.versions[&Cluster], Version::of_all(&[cluster("b", 1)]));
}

/// R10: by the error, and not by the version.
#[test]
fn request_with_error_is_a_nack_even_with_current_version() {
    let mut client = Client::settled(&set([secret("s", 1)]));
    client.give(&set([secret("s", 2)]));
    let push = client.open.remove(0);
    let error = Some(ErrorDetail { code: 13, message: "no".to_owned() });
    let version_info = push.version.unwrap().to_string();
    let outputs = client.stream.on_request(
        &SotwRequest { version_info, nonce: push.nonce.to_string(), error, ..client.says(Secret) },
        client.now,
    );
    let [Output::Nacked(refused)] = &outputs[..] else { panic!("{outputs:?}") };
    assert!(refused.is_final);
    assert!(!client.stream.acked(Secret).contains_key("s"), "it is in doubt");
}

/// R13: what a stale request drops is dropped, and what the next one wants is sent.
#[test]
fn request_with_stale_nonce_gets_no_response() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1), secret("u", 1)]));
    client.ask(Secret, &["s", "t"]);
    client.give(&set([secret("s", 2), secret("t", 1), secret("u", 1)]));
    assert_eq!(client.saw(), ["SDS +s"]);
    // It was written before the client had read the push.
    client.ask(Secret, &["s", "t", "u"]);
    let error = Some(ErrorDetail { code: 13, message: "stale".to_owned() });
    client.request(&SotwRequest { error, ..client.says(Secret) });
    for nonce in ["", "999", "no number"] {
        client.request(&SotwRequest { nonce: nonce.to_owned(), ..client.says(Secret) });
    }
    assert!(client.saw().is_empty(), "the push of s is still under way, and not refused");
    client.take(Secret);
    assert_eq!(client.saw(), ["SDS +u"]);
}

/// R15, rule 1: Envoy does so when it warms a cluster anew.
#[test]
fn repeated_request_resends_endpoints_but_not_listeners() {
    let mut client =
        Client::settled(&set([endpoints("a", 1), endpoints("b", 1), listener("l", 1)]));
    client.ask_again(Endpoint);
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS +a +b"]);
    client.ask_again(Listener);
    assert!(client.saw().is_empty(), "listeners and clusters it does not lose");
}

/// R15, A33: one that sends each of its ACKs twice does not get a push for each.
#[test]
fn repeated_requests_get_one_response_per_referring_push() {
    let all = |n| {
        set([cluster("a", n), endpoints("a", 1), secret("s", 1), listener("l", n), route("r", 1)])
    };
    let mut client = Client::settled(&all(1));
    for of in [Endpoint, Secret, Route] {
        client.ask_again(of);
        client.take(of);
        client.saw();
        for _ in 0..3 {
            client.ask_again(of);
        }
        assert!(client.saw().is_empty(), "{of}");
    }
    client.give(&all(2));
    client.take_all();
    assert_eq!(client.saw(), ["CDS +a", "EDS +a", "LDS +l"]);
    for (of, push) in [(Endpoint, "EDS +a"), (Secret, "SDS +s"), (Route, "RDS +r")] {
        client.ask_again(of);
        client.take(of);
        client.ask_again(of);
        assert_eq!(client.saw(), [push]);
    }
}

/// R15: what was asked before the push of clusters came does not count against it.
#[test]
fn repeated_request_during_cluster_push_allows_one_more() {
    let all = |n| set([cluster("a", n), endpoints("b", 1)]);
    let mut client = Client::settled(&all(1));
    client.give(&all(2));
    client.give(&all(3));
    client.ask_again(Endpoint);
    client.take(Endpoint);
    assert_eq!(client.saw(), ["CDS +a", "EDS +b"]);
    client.take(Cluster);
    client.ask_again(Endpoint);
    assert_eq!(client.saw(), ["CDS +a", "EDS +b"]);
}

/// R15, R19: silence would let a cluster warm for 15 s.
#[test]
fn requested_nacked_endpoints_are_sent_in_earlier_version() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.give(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.refuse(Endpoint, "one is bad");
    client.refuse(Endpoint, "this one");
    client.take(Endpoint);
    client.saw();
    client.ask_again(Endpoint);
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS +a +b"]);
    assert_eq!(client.has[&(Endpoint, "a".into())], endpoints("a", 1), "what it had before");
    client.give(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.ask_again(Endpoint);
    client.give(&set([endpoints("a", 3), endpoints("b", 2)]));
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS +a +b", "EDS +a"]);
}

/// R41: what is not in a response is removed, so the version before stands in the place of the refused.
#[test]
fn nacked_cluster_is_sent_in_its_last_acked_version() {
    let mut client = Client::settled(&set([cluster("a", 1), cluster("b", 1)]));
    client.give(&set([cluster("a", 2), cluster("b", 1)]));
    client.refuse(Cluster, "no");
    assert_eq!(client.saw(), ["CDS +a", "CDS refused: a (no)"]);
    client.give(&set([cluster("a", 2), cluster("b", 2)]));
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +b"]);
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
    // Rule 5: Envoy does not tell what it has taken of a refused push, so it is sent again.
    client.give(&set([cluster("a", 3), cluster("b", 2)]));
    client.refuse(Cluster, "no");
    client.saw();
    client.give(&set([cluster("a", 1), cluster("b", 2)]));
    assert_eq!(client.saw(), ["CDS"], "nothing but what it may have already");
    assert_eq!(client.open[0].resources, [cluster("a", 1), cluster("b", 2)]);
    client.take(Cluster);
    client.give(&ResourceSet::default());
    assert_eq!(client.saw(), ["CDS -a -b"], "and it can be removed");
}

/// Rule 10: a late push may have been refused for all we know. Its answer is stale when another has
/// gone out.
#[test]
fn unacked_push_is_repeated_with_the_next_one() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.give(&set([secret("s", 2), secret("t", 1)]));
    client.pass(ACK_DEADLINE);
    assert_eq!(client.saw(), ["SDS +s", "SDS late"]);
    client.give(&set([secret("s", 2), secret("t", 2)]));
    assert_eq!(client.saw(), ["SDS +s +t"]);
    client.refuse(Secret, "late, and not heard");
    client.take(Secret);
    assert!(client.saw().is_empty());
    assert_eq!(client.stream.acked(Secret).get("s"), Some(secret("s", 2).version()));
}

/// R19: the client is where it was before it refused, so the refused version is as bad as it was.
#[test]
fn ack_of_earlier_version_does_not_lift_a_nack() {
    let mut client = Client::settled(&set([route("r", 1)]));
    client.give(&set([route("r", 2)]));
    client.refuse(Route, "bad");
    client.give(&set([route("r", 1)]));
    client.take_all();
    assert_eq!(client.saw(), ["RDS +r", "RDS refused: r (bad)", "RDS +r"]);
    client.give(&set([route("r", 2)]));
    assert_eq!(client.saw(), Vec::<String>::new());
    // Another version does.
    client.give(&set([route("r", 3)]));
    client.take_all();
    client.give(&set([route("r", 2)]));
    assert_eq!(client.saw(), ["RDS +r", "RDS +r"]);
}

/// R19: on a new stream the server does not know that the client takes what it has had all the time.
#[test]
fn nack_survives_ack_of_earlier_version_after_reconnect() {
    let (good, bad) = (set([route("r", 1)]), set([route("r", 2)]));
    let mut client = Client::settled(&good);
    client.reconnect();
    client.give(&bad);
    client.come_back(Route);
    client.refuse(Route, "bad");
    client.give(&good);
    assert_eq!(client.saw(), ["RDS +r", "RDS refused: r (bad)", "RDS +r"]);
    client.take(Route);
    client.give(&bad);
    assert!(client.saw().is_empty(), "it is refused still");
}

/// R41, R54, R57: the version in force names a cluster that is on its way, and the client may have another
/// version.
#[test]
fn nacked_listener_is_not_sent_or_omitted_before_its_cluster() {
    let (old, new) = (listener_of("l", 1, &["a"]), listener_of("l", 2, &["a"]));
    let mut client = Client::settled(&set([old.clone()]));
    client.give(&set([new]));
    client.refuse(Listener, "l is bad, or something else");
    client.saw();
    client.give(&set([old, cluster("a", 1)]));
    assert_eq!(client.saw(), ["CDS +a"]);
    client.take(Cluster);
    assert_eq!(client.saw(), ["LDS"]);
}
