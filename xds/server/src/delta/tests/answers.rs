//! ACKs and NACKs, and what they change.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Secret};

use super::client::{Client, answer};
use crate::delta::Output;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{cluster, endpoints, listener, secret, set};

// R21.
#[test]
fn nothing_is_sent_where_nothing_changed_and_an_ack_is_not_answered() {
    let all = set([cluster("a", 1), endpoints("a", 1), listener("l", 1)]);
    let mut client = Client::new();
    client.give(&all);
    client.subscribe_to(&all);
    client.take_all();
    assert_eq!(client.saw(), ["CDS +a", "EDS +a", "SDS", "RDS", "LDS +l"]);
    client.give(&all);
    client.give(&set([cluster("a", 1), endpoints("a", 1), listener("l", 1)]));
    assert!(client.saw().is_empty());
}

// R16.
#[test]
fn an_ack_tells_what_the_client_has() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.give(&set([secret("s", 2)]));
    assert_eq!(client.stream.acked(Secret)["s"], secret("s", 1).version());
    let nonce = client.open[0].1.nonce;
    let outputs = client.stream.on_request(&answer(Secret, nonce, None), client.now);
    let [Output::Acked(taken), Output::Send(removal)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((taken.resource_type, &*taken.names), (Secret, &["s".into()][..]));
    assert_eq!(client.stream.acked(Secret)["s"], secret("s", 2).version());
    let outputs = client.stream.on_request(&answer(Secret, removal.nonce, None), client.now);
    let [Output::Acked(taken)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(&*taken.names, &["t".into()][..]);
    assert!(!client.stream.acked(Secret).contains_key("t"));
}

// One push in flight per type, and no queue of old states.
#[test]
fn what_changes_while_a_push_is_under_way_goes_with_the_next_in_its_newest_version() {
    let mut client = Client::settled(&set([secret("s", 1)]));
    for content in 2..=5 {
        client.give(&set([secret("s", content)]));
    }
    assert_eq!(client.saw(), ["SDS +s"]);
    client.take(Secret);
    assert_eq!(client.saw(), ["SDS +s"]);
    assert_eq!(client.open[0].1.resources, [secret("s", 5)]);
    client.take(Secret);
    assert!(client.saw().is_empty());
}

#[test]
fn what_changes_back_while_a_push_is_under_way_is_not_sent_twice() {
    let mut client = Client::settled(&set([secret("s", 1)]));
    for content in [2, 3, 2] {
        client.give(&set([secret("s", content)]));
    }
    client.take_all();
    assert_eq!(client.saw(), ["SDS +s"]);
}

// Rule 5, R19: which of several is refused is not known.
#[test]
fn after_a_refusal_of_several_each_comes_alone_and_the_guilty_no_more() {
    let mut client = Client::settled(&ResourceSet::default());
    client.give(&set([cluster("a", 1), cluster("bad", 1), cluster("c", 1)]));
    client.refuse(Cluster, "one is bad");
    client.take(Cluster);
    client.refuse(Cluster, "this one");
    client.take(Cluster);
    assert_eq!(
        client.saw(),
        [
            "CDS +a +bad +c",
            "CDS in doubt: a bad c (one is bad)",
            "CDS +a",
            "CDS +bad",
            "CDS refused: bad (this one)",
            "CDS +c",
        ]
    );
    client.give(&set([cluster("a", 1), cluster("bad", 1), cluster("c", 2)]));
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +c"]);
    client.give(&set([cluster("a", 1), cluster("bad", 2), cluster("c", 2)]));
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +bad"], "it has changed");
}

// Rule 5: what Envoy has taken of a refused push it does not tell, so it is sent again.
#[test]
fn a_refused_change_is_followed_by_the_old_version_when_it_is_wanted_again() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.give(&set([cluster("a", 2)]));
    client.refuse(Cluster, "no");
    client.saw();
    client.give(&set([cluster("a", 1)]));
    assert_eq!(client.saw(), ["CDS +a"]);
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
        ["SDS +s", "CDS +a", "SDS refused: s (no)", "CDS refused: a (no)", "LDS +l"]
    );
}

#[test]
fn a_refused_resource_can_still_be_removed() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.give(&set([cluster("a", 2)]));
    client.refuse(Cluster, "no");
    client.saw();
    client.give(&ResourceSet::default());
    assert_eq!(client.saw(), ["CDS -a"]);
}

// Two pushes are without an answer when the first is late; each may be refused.
#[test]
fn a_late_refusal_of_several_does_not_stall_on_what_is_refused_meanwhile() {
    let mut client = Client::settled(&ResourceSet::default());
    client.give(&set([cluster("a", 1), cluster("b", 1)]));
    client.pass(ACK_DEADLINE);
    client.give(&set([cluster("a", 2), cluster("b", 1)]));
    assert_eq!(client.saw(), ["CDS +a +b", "CDS late", "CDS +a"]);
    client.refuse(Cluster, "one is bad");
    client.refuse(Cluster, "also bad");
    assert_eq!(
        client.saw(),
        ["CDS in doubt: a b (one is bad)", "CDS refused: a (also bad)", "CDS +b"]
    );
}

#[test]
fn names_in_doubt_that_change_or_go_meanwhile_are_sent_as_they_are_now() {
    let mut client = Client::settled(&ResourceSet::default());
    client.give(&set([cluster("a", 1), cluster("b", 1), cluster("c", 1)]));
    client.give(&set([cluster("b", 2), cluster("c", 1)]));
    client.refuse(Cluster, "one is bad");
    client.take(Cluster);
    client.take(Cluster);
    assert_eq!(
        client.saw(),
        ["CDS +a +b +c", "CDS in doubt: a b c (one is bad)", "CDS +b", "CDS +c", "CDS -a"]
    );
    client.take(Cluster);
    assert_eq!(client.stream.acked(Cluster)["b"], cluster("b", 2).version());
}

// Rule 5: of a refused push nothing may be taken, also not that something is gone.
#[test]
fn what_is_gone_is_told_again_after_a_push_that_was_refused() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.give(&set([cluster("a", 1), cluster("b", 1)]));
    client.give(&set([cluster("bad", 1), cluster("b", 1)]));
    client.ask(Cluster, &["a"]);
    client.take(Cluster);
    client.refuse(Cluster, "no");
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +b", "CDS +bad -a", "CDS refused: bad (no)", "CDS -a"]);
    assert!(!client.stream.acked(Cluster).contains_key("a"));
}

// R27: silence would let it wait for 15 s.
#[test]
fn a_refused_resource_that_the_client_asks_for_is_told_as_removed() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.give(&set([endpoints("a", 2)]));
    client.refuse(Endpoint, "no");
    client.drop_names(Endpoint, &["a"]);
    client.ask(Endpoint, &["a"]);
    assert_eq!(client.saw(), ["EDS +a", "EDS refused: a (no)", "EDS -a"]);
}

// R4.
#[test]
fn a_nonce_counts_only_for_its_type() {
    let mut client = Client::settled(&set([cluster("a", 1), listener("l", 1)]));
    client.give(&set([cluster("a", 2), listener("l", 2)]));
    let nonce = client.open[0].1.nonce;
    client.request(&answer(Listener, nonce, None));
    assert_eq!(client.saw(), ["CDS +a"], "the clusters are not taken");
}
