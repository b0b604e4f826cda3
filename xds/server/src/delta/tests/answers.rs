//! ACKs and NACKs, where several pushes may wait for them and a response lists removals.

use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Listener, Secret};

use super::client::{Client, answer};
use crate::delta::DeltaOutput;
use crate::stream::ACK_DEADLINE;
use crate::test_resources::{cluster, endpoints, listener, secret, set};

/// R16.
#[test]
fn ack_updates_the_acked_versions_and_removals() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.publish(&set([secret("s", 2)]));
    assert_eq!(client.stream.acked(Secret).get("s"), Some(secret("s", 1).version()));
    let nonce = client.open[0].nonce;
    let outputs = client.stream.on_request(&answer(Secret, nonce), client.now);
    let [DeltaOutput::Acked(acked), DeltaOutput::Send(removal)] = &outputs[..] else {
        panic!("{outputs:?}")
    };
    assert_eq!((acked.resource_type, &*acked.names), (Secret, &["s".into()][..]));
    assert_eq!(client.stream.acked(Secret).get("s"), Some(secret("s", 2).version()));
    let outputs = client.stream.on_request(&answer(Secret, removal.nonce), client.now);
    let [DeltaOutput::Acked(acked)] = &outputs[..] else { panic!("{outputs:?}") };
    assert_eq!(&*acked.names, &["t".into()][..]);
    assert!(!client.stream.acked(Secret).contains_key("t"));
}

/// Rule 5, R16: two pushes are unanswered when the first is late; each may be NACKed.
#[test]
fn late_bisection_is_not_stalled_by_nack_of_a_later_push() {
    let mut client = Client::settled(&ResourceSet::default());
    client.publish(&set([cluster("a", 1), cluster("b", 1)]));
    client.pass(ACK_DEADLINE);
    client.publish(&set([cluster("a", 2), cluster("b", 1)]));
    assert_eq!(client.take_pushes(), ["CDS +a +b", "CDS late", "CDS +a"]);
    client.nack(Cluster, "one is bad");
    client.nack(Cluster, "also bad");
    assert_eq!(
        client.take_pushes(),
        ["CDS bisecting: a b (one is bad)", "CDS nacked: a (also bad)", "CDS +b"]
    );
}

/// Rule 5: a missing name is reported again after a NACK, unless the resource has appeared
/// meanwhile.
#[test]
fn late_nack_repeats_only_removals_that_still_hold() {
    let mut client = Client::settled(&set([secret("s", 1)]));
    client.publish(&set([secret("s", 1), secret("t", 1)]));
    client.subscribe(Secret, &["t", "u", "v"]);
    assert_eq!(client.take_pushes(), ["SDS +t -u -v"]);
    client.pass(ACK_DEADLINE);
    client.publish(&set([secret("s", 1), secret("t", 1), secret("u", 1)]));
    assert_eq!(client.take_pushes(), ["SDS late", "SDS +u"]);
    client.nack(Secret, "t is bad");
    client.ack(Secret);
    assert_eq!(client.take_pushes(), ["SDS nacked: t (t is bad)", "SDS -v"]);
}

/// Rule 6: an unsubscribed resource counts as absent, even if an earlier push with it is ACKed
/// later.
#[test]
fn unsubscribed_wildcard_drops_late_acked_resources() {
    let mut client = Client::settled(&ResourceSet::default());
    client.publish(&set([cluster("a", 1)]));
    client.change(Cluster, &["*"], &["*"]);
    client.ack(Cluster);
    assert!(client.stream.acked(Cluster).contains_key("a"));
    client.change(Cluster, &["a"], &["*"]);
    assert!(!client.stream.acked(Cluster).contains_key("a"));
    assert!(client.has.is_empty());
}

/// Rule 5: a NACK of another push does not repeat an attempt of the bisection.
#[test]
fn late_nack_does_not_bisect_resources_of_a_later_push() {
    let mut client = Client::settled(&ResourceSet::default());
    client.publish(&set([cluster("a", 1), cluster("b", 1)]));
    client.pass(ACK_DEADLINE);
    client.publish(&set([cluster("a", 2), cluster("b", 2)]));
    client.pass(ACK_DEADLINE);
    client.nack(Cluster, "b is bad");
    assert_eq!(
        client.take_pushes(),
        ["CDS +a +b", "CDS late", "CDS +a +b", "CDS late", "CDS bisecting: a b (b is bad)"]
    );
    client.nack(Cluster, "b is bad");
    client.ack(Cluster);
    client.nack(Cluster, "bad");
    assert_eq!(
        client.take_pushes(),
        ["CDS bisecting: a b (b is bad)", "CDS +a", "CDS +b", "CDS nacked: b (bad)"]
    );
}

/// Rule 5: the client may apply a part of a NACKed push, even if it has unsubscribed from all of it
/// and subscribed again.
#[test]
fn partially_applied_push_is_removed_after_resubscription() {
    let mut client = Client::settled(&ResourceSet::default());
    client.publish(&set([listener("a", 1), listener("b", 1)]));
    client.change(Listener, &["*"], &["*"]);
    client.nack_in_part(Listener, |one| &**one.name() == "a");
    assert!(client.has.contains_key(&(Listener, "b".into())));
    client.publish(&ResourceSet::default());
    client.ack_all();
    assert!(client.has.is_empty(), "{:?}", client.has);
}

/// Rule 10: more pushes than the stream remembers, all of them ACKed late.
#[test]
fn forgotten_pushes_converge_after_late_acks() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.publish(&set([cluster("a", 1), cluster("b", 1)]));
    for content in 2..14 {
        client.pass(ACK_DEADLINE);
        client.publish(&set([cluster("a", content), cluster("b", 1)]));
    }
    client.ack_all();
    assert_eq!(client.stream.acked(Cluster).get("b"), Some(cluster("b", 1).version()));
    assert_eq!(client.stream.acked(Cluster).get("a"), Some(cluster("a", 13).version()));
}

/// Rule 5.
#[test]
fn bisection_sends_changed_and_removed_resources_as_current() {
    let mut client = Client::settled(&ResourceSet::default());
    client.publish(&set([cluster("a", 1), cluster("b", 1), cluster("c", 1)]));
    client.publish(&set([cluster("b", 2), cluster("c", 1)]));
    client.nack(Cluster, "one is bad");
    client.ack(Cluster);
    client.ack(Cluster);
    assert_eq!(
        client.take_pushes(),
        ["CDS +a +b +c", "CDS bisecting: a b c (one is bad)", "CDS +b", "CDS +c", "CDS -a"]
    );
    client.ack(Cluster);
    assert_eq!(client.stream.acked(Cluster).get("b"), Some(cluster("b", 2).version()));
}

/// Rule 5: a client that NACKs a push may have applied nothing of it, including removals.
#[test]
fn removal_is_resent_after_nack_of_its_push() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    client.publish(&set([cluster("a", 1), cluster("b", 1)]));
    client.publish(&set([cluster("bad", 1), cluster("b", 1)]));
    client.subscribe(Cluster, &["a"]);
    client.ack(Cluster);
    client.nack(Cluster, "no");
    client.ack(Cluster);
    assert_eq!(client.take_pushes(), ["CDS +b", "CDS +bad -a", "CDS nacked: bad (no)", "CDS -a"]);
    assert!(!client.stream.acked(Cluster).contains_key("a"));
}

/// R19, R27: without a response the client would wait for 15 s.
#[test]
fn requested_nacked_resource_is_reported_as_removed() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.publish(&set([endpoints("a", 2)]));
    client.nack(Endpoint, "no");
    client.unsubscribe(Endpoint, &["a"]);
    client.subscribe(Endpoint, &["a"]);
    assert_eq!(client.take_pushes(), ["EDS +a", "EDS nacked: a (no)", "EDS -a"]);
}
