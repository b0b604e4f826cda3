//! ACKs and NACKs, and what they change.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::{ErrorDetail, SotwRequest, Version};

use super::client::Client;
use crate::sotw::Output;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{cluster, endpoints, listener, route, secret, set};

// R21.
#[test]
fn nothing_is_sent_where_nothing_changed_and_an_ack_is_not_answered() {
    let all = set([cluster("a", 1), endpoints("a", 1), listener("l", 1)]);
    let mut client = Client::new();
    client.give(&all);
    client.subscribe_to(&all);
    client.take_all();
    assert_eq!(client.saw(), ["CDS a", "EDS a", "SDS", "RDS", "LDS l"]);
    client.give(&all);
    client.give(&set([cluster("a", 1), endpoints("a", 1), listener("l", 1)]));
    assert!(client.saw().is_empty());
}

// R10, R23: an ACK tells what the client has, and the version is that of the content.
#[test]
fn an_ack_tells_what_the_client_has() {
    let mut client = Client::settled(&set([secret("s", 1), cluster("a", 1)]));
    assert_eq!(client.stream.acked(Secret)["s"], secret("s", 1).version());
    assert_eq!(client.versions[&Cluster], Version::of_all(&[cluster("a", 1)]).to_string());
    client.give(&set([secret("s", 2), cluster("b", 1)]));
    assert_eq!(client.stream.acked(Secret)["s"], secret("s", 1).version());
    client.take_all();
    assert_eq!(client.stream.acked(Secret)["s"], secret("s", 2).version());
    assert!(!client.stream.acked(Cluster).contains_key("a"), "it is gone");
    assert_eq!(client.versions[&Cluster], Version::of_all(&[cluster("b", 1)]).to_string());
}

// R10: by the error, and not by the version.
#[test]
fn a_nack_is_told_by_its_error_alone() {
    let mut client = Client::settled(&set([secret("s", 1)]));
    client.give(&set([secret("s", 2)]));
    let push = client.open.remove(0);
    let error = Some(ErrorDetail { code: 13, message: "no".to_owned() });
    let (version_info, nonce) = (push.version.to_string(), push.nonce.to_string());
    let outputs = client.stream.on_request(
        &SotwRequest { version_info, nonce, error, ..client.request_of(Secret) },
        client.now,
    );
    let [Output::Nacked(refused)] = &outputs[..] else { panic!("{outputs:?}") };
    assert!(refused.is_final);
    assert!(!client.stream.acked(Secret).contains_key("s"), "it is in doubt");
}

// One push in flight per type, and no queue of old states.
#[test]
fn what_changes_while_a_push_is_under_way_goes_with_the_next_in_its_newest_version() {
    let mut client = Client::settled(&set([route("r", 1), listener("l", 1)]));
    for content in 2..=5 {
        client.give(&set([route("r", content), listener("l", content)]));
    }
    assert_eq!(client.saw(), ["LDS l", "RDS r"]);
    client.take_all();
    assert_eq!(client.saw(), ["LDS l", "RDS r"]);
    assert_eq!(client.has[&(Listener, "l".into())], listener("l", 5));
}

// R13: neither answered nor counted as an answer.
#[test]
fn a_stale_nonce_is_not_answered() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1), secret("u", 1)]));
    client.ask(Secret, &["s", "t"]);
    client.give(&set([secret("s", 2), secret("t", 1), secret("u", 1)]));
    assert_eq!(client.saw(), ["SDS s"]);
    // It was written before the client had read the push.
    client.ask(Secret, &["s", "t", "u"]);
    let error = Some(ErrorDetail { code: 13, message: "stale".to_owned() });
    client.request(&SotwRequest { error, ..client.request_of(Secret) });
    for nonce in ["", "999", "no number"] {
        client.request(&SotwRequest { nonce: nonce.to_owned(), ..client.request_of(Secret) });
    }
    assert!(client.saw().is_empty(), "the push of s is still under way, and not refused");
    client.take(Secret);
    assert_eq!(client.saw(), ["SDS u"]);
}

// R4.
#[test]
fn a_nonce_counts_only_for_its_type() {
    let mut client = Client::settled(&set([cluster("a", 1), listener("l", 1)]));
    client.give(&set([cluster("a", 2), listener("l", 2)]));
    let nonce = client.open[0].nonce.to_string();
    client.request(&SotwRequest { nonce, ..client.request_of(Listener) });
    assert_eq!(client.saw(), ["CDS a"], "the clusters are not taken");
}

// R15, rule 1: Envoy does so when it warms a cluster anew.
#[test]
fn a_request_like_the_one_that_took_the_last_push_asks_again() {
    let mut client =
        Client::settled(&set([endpoints("a", 1), endpoints("b", 1), listener("l", 1)]));
    client.ask_again(Endpoint);
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS a b"]);
    client.ask_again(Listener);
    assert!(client.saw().is_empty(), "listeners and clusters it does not lose");
}

// R15, A33: one that sends each of its ACKs twice does not get a push for each.
#[test]
fn who_asks_again_and_again_is_answered_once_for_each_push_of_what_refers_to_it() {
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
    assert_eq!(client.saw(), ["CDS a", "EDS a", "LDS l"]);
    for (of, push) in [(Endpoint, "EDS a"), (Secret, "SDS s"), (Route, "RDS r")] {
        client.ask_again(of);
        client.take(of);
        client.ask_again(of);
        assert_eq!(client.saw(), [push]);
    }
}

// R15: what was asked before the push of clusters came does not count against it.
#[test]
fn who_asks_again_while_clusters_are_on_their_way_may_do_so_once_more() {
    let all = |n| set([cluster("a", n), endpoints("b", 1)]);
    let mut client = Client::settled(&all(1));
    client.give(&all(2));
    client.give(&all(3));
    client.ask_again(Endpoint);
    client.take(Endpoint);
    assert_eq!(client.saw(), ["CDS a", "EDS b"]);
    client.take(Cluster);
    client.ask_again(Endpoint);
    assert_eq!(client.saw(), ["CDS a", "EDS b"]);
}

// Rule 5, R19: which of several is refused is not known. Each is tried on top of what is in force.
#[test]
fn after_a_refusal_of_several_each_is_tried_alone_and_the_guilty_no_more() {
    let mut client = Client::settled(&set([cluster("old", 1), cluster("c", 1)]));
    let all = |c| set([cluster("old", 1), cluster("a", 1), cluster("bad", 1), cluster("c", c)]);
    client.give(&all(2));
    client.refuse(Cluster, "one is bad");
    client.take(Cluster);
    client.refuse(Cluster, "this one");
    client.take(Cluster);
    assert_eq!(
        client.saw(),
        [
            "CDS a bad c old",
            "CDS in doubt: a bad c (one is bad)",
            "CDS a c old",
            "CDS a bad c old",
            "CDS refused: bad (this one)",
            "CDS a c old",
        ]
    );
    assert_eq!(client.has[&(Cluster, "c".into())], cluster("c", 2));
    client.give(&all(3));
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS a c old"]);
}

#[test]
fn after_a_refusal_of_several_endpoints_each_comes_alone() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.give(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.refuse(Endpoint, "one is bad");
    client.refuse(Endpoint, "this one");
    client.take(Endpoint);
    assert_eq!(
        client.saw(),
        [
            "EDS a b",
            "EDS in doubt: a b (one is bad)",
            "EDS a",
            "EDS refused: a (this one)",
            "EDS b"
        ]
    );
    // Silence would let a cluster warm for 15 s.
    client.ask_again(Endpoint);
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS a b"]);
    assert_eq!(client.has[&(Endpoint, "a".into())], endpoints("a", 1), "what it had before");
    client.give(&set([endpoints("a", 2), endpoints("b", 2)]));
    client.ask_again(Endpoint);
    client.give(&set([endpoints("a", 3), endpoints("b", 2)]));
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS a b", "EDS a"]);
}

// R41: what is not in a response is removed, so the version before stands in the place of the refused.
#[test]
fn what_is_refused_is_sent_in_the_version_that_is_in_force() {
    let mut client = Client::settled(&set([cluster("a", 1), cluster("b", 1)]));
    client.give(&set([cluster("a", 2), cluster("b", 1)]));
    client.refuse(Cluster, "no");
    assert_eq!(client.saw(), ["CDS a b", "CDS refused: a (no)"]);
    client.give(&set([cluster("a", 2), cluster("b", 2)]));
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS a b"]);
    assert_eq!(client.has[&(Cluster, "a".into())], cluster("a", 1));
    // Rule 5: Envoy does not tell what it has taken of a refused push, so it is sent again.
    client.give(&set([cluster("a", 3), cluster("b", 2)]));
    client.refuse(Cluster, "no");
    client.saw();
    client.give(&set([cluster("a", 1), cluster("b", 2)]));
    assert_eq!(client.saw(), ["CDS a b"]);
    client.take(Cluster);
    client.give(&ResourceSet::default());
    assert_eq!(client.saw(), ["CDS"], "and it can be removed");
}

// R20.
#[test]
fn a_refusal_of_one_type_does_not_stall_the_others() {
    let mut client = Client::settled(&set([cluster("a", 1), listener("l", 1), secret("s", 1)]));
    client.give(&set([cluster("a", 2), listener("l", 2), secret("s", 2)]));
    client.refuse(Secret, "no");
    client.refuse(Cluster, "no");
    assert_eq!(
        client.saw(),
        ["SDS s", "CDS a", "SDS refused: s (no)", "CDS refused: a (no)", "LDS l"]
    );
}

// A late push may have been refused for all we know: its answer is stale when another has gone out.
#[test]
fn what_was_in_a_push_without_an_answer_comes_again_with_the_next() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.give(&set([secret("s", 2), secret("t", 1)]));
    client.pass(ACK_DEADLINE);
    assert_eq!(client.saw(), ["SDS s", "SDS late"]);
    client.give(&set([secret("s", 2), secret("t", 2)]));
    assert_eq!(client.saw(), ["SDS s t"]);
    client.refuse(Secret, "late, and not heard");
    client.take(Secret);
    assert!(client.saw().is_empty());
    assert_eq!(client.stream.acked(Secret)["s"], secret("s", 2).version());
}
