//! ACKs and NACKs, where several pushes may wait for them and a response says what is gone.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Secret};

use super::client::{Client, answer};
use crate::delta::Output;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{cluster, endpoints, listener, secret, set};

/// R16.
#[test]
fn ack_updates_the_acked_versions_and_removals() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.give(&set([secret("s", 2)]));
    assert_eq!(client.stream.acked(Secret).get("s"), Some(secret("s", 1).version()));
    let nonce = client.open[0].nonce;
    let outputs = client.stream.on_request(&answer(Secret, nonce), client.now);
    let [Output::Acked(taken), Output::Send(removal)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!((taken.resource_type, &*taken.names), (Secret, &["s".into()][..]));
    assert_eq!(client.stream.acked(Secret).get("s"), Some(secret("s", 2).version()));
    let outputs = client.stream.on_request(&answer(Secret, removal.nonce), client.now);
    let [Output::Acked(taken)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(&*taken.names, &["t".into()][..]);
    assert!(!client.stream.acked(Secret).contains_key("t"));
}

/// Rule 5, R16: two pushes are without an answer when the first is late; each may be refused.
#[test]
fn late_bisection_is_not_stalled_by_nack_of_a_later_push() {
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

/// Rule 5: that something is not there is told again after a refusal, unless it has come meanwhile.
#[test]
fn late_nack_repeats_only_removals_that_still_hold() {
    let mut client = Client::settled(&set([secret("s", 1)]));
    client.give(&set([secret("s", 1), secret("t", 1)]));
    client.wants(Secret, &["t", "u", "v"]);
    assert_eq!(client.saw(), ["SDS +t -u -v"]);
    client.pass(ACK_DEADLINE);
    client.give(&set([secret("s", 1), secret("t", 1), secret("u", 1)]));
    assert_eq!(client.saw(), ["SDS late", "SDS +u"]);
    client.refuse(Secret, "t is bad");
    client.take(Secret);
    assert_eq!(client.saw(), ["SDS refused: t (t is bad)", "SDS -v"]);
}

/// Rule 6: what is dropped is not there, also where it was taken of a push from before.
#[test]
fn unsubscribed_wildcard_drops_late_acked_resources() {
    let mut client = Client::settled(&ResourceSet::default());
    client.give(&set([cluster("a", 1)]));
    client.change(Cluster, &["*"], &["*"]);
    client.take(Cluster);
    assert!(client.stream.acked(Cluster).contains_key("a"));
    client.change(Cluster, &["a"], &["*"]);
    assert!(!client.stream.acked(Cluster).contains_key("a"));
    assert!(client.has.is_empty());
}

/// Rule 5: what was tried by then is not tried once more for another push that was refused.
#[test]
fn late_nack_does_not_bisect_resources_of_a_later_push() {
    let mut client = Client::settled(&ResourceSet::default());
    client.give(&set([cluster("a", 1), cluster("b", 1)]));
    client.pass(ACK_DEADLINE);
    client.give(&set([cluster("a", 2), cluster("b", 2)]));
    client.pass(ACK_DEADLINE);
    client.refuse(Cluster, "b is bad");
    assert_eq!(
        client.saw(),
        ["CDS +a +b", "CDS late", "CDS +a +b", "CDS late", "CDS in doubt: a b (b is bad)"]
    );
    client.refuse(Cluster, "b is bad");
    client.take(Cluster);
    client.refuse(Cluster, "bad");
    assert_eq!(
        client.saw(),
        ["CDS in doubt: a b (b is bad)", "CDS +a", "CDS +b", "CDS refused: b (bad)"]
    );
}

/// Rule 5: of a push that is refused the client may take a part, also where it has dropped all of it and
/// wants it again meanwhile.
#[test]
fn partially_applied_push_is_removed_after_resubscription() {
    let mut client = Client::settled(&ResourceSet::default());
    client.give(&set([listener("a", 1), listener("b", 1)]));
    client.change(Listener, &["*"], &["*"]);
    client.refuse_in_part(Listener, |one| &**one.name() == "a");
    assert!(client.has.contains_key(&(Listener, "b".into())));
    client.give(&ResourceSet::default());
    client.take_all();
    assert!(client.has.is_empty(), "{:?}", client.has);
}

/// Rule 10: more pushes than are remembered, and then all of them are answered.
#[test]
fn forgotten_pushes_converge_after_late_acks() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.give(&set([cluster("a", 1), cluster("b", 1)]));
    for content in 2..14 {
        client.pass(ACK_DEADLINE);
        client.give(&set([cluster("a", content), cluster("b", 1)]));
    }
    client.take_all();
    assert_eq!(client.stream.acked(Cluster).get("b"), Some(cluster("b", 1).version()));
    assert_eq!(client.stream.acked(Cluster).get("a"), Some(cluster("a", 13).version()));
}

/// Rule 5.
#[test]
fn bisection_sends_changed_and_removed_resources_as_current() {
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
    assert_eq!(client.stream.acked(Cluster).get("b"), Some(cluster("b", 2).version()));
}

/// Rule 5: of a refused push nothing may be taken, also not that something is gone.
#[test]
fn removal_is_resent_after_nack_of_its_push() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.give(&set([cluster("a", 1), cluster("b", 1)]));
    client.give(&set([cluster("bad", 1), cluster("b", 1)]));
    client.wants(Cluster, &["a"]);
    client.take(Cluster);
    client.refuse(Cluster, "no");
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +b", "CDS +bad -a", "CDS refused: bad (no)", "CDS -a"]);
    assert!(!client.stream.acked(Cluster).contains_key("a"));
}

/// R19, R27: silence would let it wait for 15 s.
#[test]
fn requested_nacked_resource_is_reported_as_removed() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.give(&set([endpoints("a", 2)]));
    client.refuse(Endpoint, "no");
    client.drops(Endpoint, &["a"]);
    client.wants(Endpoint, &["a"]);
    assert_eq!(client.saw(), ["EDS +a", "EDS refused: a (no)", "EDS -a"]);
}
