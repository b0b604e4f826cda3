//! What a client may ask for, and what it is told then.

use ironmesh_xds_wire::DeltaRequest;
use ironmesh_xds_wire::ResourceSet;
use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};

use super::client::{Client, answer, subscribe};
use crate::stream::REMOVAL_GRACE;
use crate::test_resources::{cluster, endpoints, listener, resource, secret, set};

// Rule 3.
#[test]
fn every_first_request_of_a_type_is_answered_even_by_nothing() {
    let mut client = Client::new();
    client.give(&ResourceSet::default());
    client.subscribe_to(&ResourceSet::default());
    assert_eq!(client.saw(), ["CDS", "EDS", "SDS"], "listeners wait until the clusters are taken");
    client.take(Cluster);
    assert_eq!(client.saw(), ["LDS", "RDS"]);
}

// Rule 3: what is asked for before it is known what the client is to have.
#[test]
fn first_requests_are_answered_when_there_is_a_set() {
    let mut client = Client::new();
    let set = set([cluster("a", 1), endpoints("a", 1)]);
    client.subscribe_to(&set);
    assert!(client.saw().is_empty());
    client.give(&set);
    assert_eq!(client.saw(), ["SDS", "CDS +a", "EDS +a"]);
}

// R36, R37.
#[test]
fn a_name_that_is_not_there_is_told_as_removed_and_pushed_when_it_appears() {
    for resource_type in ResourceType::ALL {
        let mut client = Client::new();
        client.give(&ResourceSet::default());
        client.ask(resource_type, &["a"]);
        assert!(client.saw()[0].ends_with("DS -a"));
        client.take(resource_type);
        client.give(&set([resource(resource_type, "a", 1)]));
        assert!(client.saw()[0].ends_with("DS +a"));
    }
}

// R27.
#[test]
fn a_name_is_answered_again_whenever_it_is_asked_for() {
    let mut client = Client::settled(&set([cluster("a", 1), endpoints("a", 1)]));
    client.ask(Endpoint, &["a"]);
    assert_eq!(client.saw(), ["EDS +a"]);
    client.ask(Cluster, &["a"]);
    assert_eq!(client.saw(), ["CDS +a"], "its endpoints wait: those before are not taken yet");
    client.take(Endpoint);
    assert_eq!(client.saw(), ["EDS +a"]);
}

// R28.
#[test]
fn a_name_dropped_and_wanted_in_one_message_is_answered() {
    let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
    client.request(&DeltaRequest {
        unsubscribe: vec!["a".to_owned(), "b".to_owned()],
        ..subscribe(Endpoint, &["a"])
    });
    assert_eq!(client.saw(), ["EDS +a"]);
    client.take(Endpoint);
    client.give(&set([endpoints("a", 2), endpoints("b", 2)]));
    assert_eq!(client.saw(), ["EDS +a"], "only b is dropped");
}

// R29, R38.
#[test]
fn a_dropped_name_is_updated_no_more_and_dropping_it_is_not_answered() {
    let mut client = Client::settled(&set([endpoints("a", 1)]));
    client.drop_names(Endpoint, &["a", "never wanted"]);
    client.give(&set([endpoints("a", 2)]));
    client.give(&ResourceSet::default());
    assert!(client.saw().is_empty());
}

// R38: also where a push of it is under way.
#[test]
fn a_name_dropped_while_a_push_is_under_way_is_neither_counted_nor_tried_again() {
    for is_refused in [false, true] {
        let mut client = Client::settled(&set([endpoints("a", 1), endpoints("b", 1)]));
        client.give(&set([endpoints("a", 2), endpoints("b", 2)]));
        client.drop_names(Endpoint, &["a"]);
        assert_eq!(client.saw(), ["EDS +a +b"]);
        if is_refused {
            client.refuse(Endpoint, "no");
            assert_eq!(client.saw(), ["EDS in doubt: a b (no)", "EDS +b"]);
        } else {
            client.take(Endpoint);
            assert!(client.saw().is_empty());
        }
        assert!(!client.stream.acked(Endpoint).contains_key("a"));
    }
}

// R31, R33.
#[test]
fn a_first_request_without_names_or_with_a_star_asks_for_all_clusters_or_listeners() {
    let all = set([cluster("a", 1), cluster("b", 1), listener("l", 1), listener("m", 1)]);
    for (resource_type, seen) in [(Cluster, "CDS +a +b"), (Listener, "LDS +l +m")] {
        for names in [&[][..], &["*"]] {
            let mut client = Client::new();
            client.give(&all);
            client.ask(resource_type, names);
            assert_eq!(client.saw(), [seen]);
        }
    }
}

// R35: above all never all secrets.
#[test]
fn there_is_no_wildcard_for_secrets_endpoints_and_routes() {
    let all = |content| set([Secret, Endpoint, Route].map(|of| resource(of, "a", content)));
    for (resource_type, words) in [(Secret, "SDS"), (Endpoint, "EDS"), (Route, "RDS")] {
        let mut client = Client::new();
        client.give(&all(1));
        client.ask(resource_type, &[]);
        assert_eq!(client.saw(), [words]);
        client.take(resource_type);
        client.ask(resource_type, &["*"]);
        assert_eq!(client.saw(), [format!("{words} -*")], "a name as any other, and not there");
        client.take(resource_type);
        client.give(&all(2));
        client.ask(resource_type, &[]);
        client.give(&all(3));
        assert!(client.saw().is_empty(), "nor when it changes");
    }
}

// R32.
#[test]
fn a_later_request_without_names_is_no_wildcard() {
    let mut client = Client::new();
    client.give(&set([cluster("a", 1), cluster("b", 1)]));
    client.ask(Cluster, &["a"]);
    client.take(Cluster);
    client.ask(Cluster, &[]);
    client.drop_names(Cluster, &["a"]);
    client.ask(Cluster, &[]);
    assert_eq!(client.saw(), ["CDS +a"]);
}

// R33: "on demand" first, then all: what the client has already is not sent again.
#[test]
fn a_wildcard_added_to_names_brings_the_rest() {
    let mut client = Client::new();
    client.give(&set([cluster("a", 1), cluster("b", 1)]));
    client.ask(Cluster, &["a"]);
    client.take(Cluster);
    client.ask(Cluster, &["*"]);
    assert_eq!(client.saw(), ["CDS +a", "CDS +b"]);
}

// R30, R34.
#[test]
fn a_name_dropped_under_a_wildcard_is_answered() {
    let mut client = Client::settled(&set([cluster("a", 1), cluster("b", 1)]));
    client.drop_names(Cluster, &["b"]);
    assert!(client.saw().is_empty(), "it was never wanted by name, and the wildcard stays");
    client.ask(Cluster, &["a", "missing"]);
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +a -missing"]);
    client.drop_names(Cluster, &["a", "missing"]);
    assert_eq!(client.saw(), ["CDS +a -missing"]);
}

// R33.
#[test]
fn a_dropped_wildcard_leaves_the_names() {
    let mut client = Client::settled(&set([cluster("a", 1), cluster("b", 1)]));
    client.ask(Cluster, &["a"]);
    client.take(Cluster);
    client.drop_names(Cluster, &["*", "*"]);
    client.saw();
    client.give(&set([cluster("a", 2), cluster("b", 2), cluster("c", 1)]));
    assert_eq!(client.saw(), ["CDS +a"]);
    client.take(Cluster);
    client.ask(Cluster, &["*"]);
    assert_eq!(
        client.saw(),
        ["CDS +b +c"],
        "the client has forgotten what only the wildcard wanted"
    );
}

// R28.
#[test]
fn a_wildcard_dropped_and_wanted_in_one_message_is_answered() {
    let mut client = Client::settled(&set([cluster("a", 1)]));
    let unsubscribe = vec!["*".to_owned()];
    client.request(&DeltaRequest { unsubscribe, ..subscribe(Cluster, &["*"]) });
    assert_eq!(client.saw(), ["CDS +a"]);
}

// R28, R47: the push and the request have crossed.
#[test]
fn what_was_under_way_when_a_wildcard_was_renewed_is_removed_when_it_has_gone() {
    let mut client = Client::new();
    client.give(&set([cluster("a", 1)]));
    client.ask(Cluster, &["*"]);
    client.give(&ResourceSet::default());
    let unsubscribe = vec!["*".to_owned()];
    client.request(&DeltaRequest { unsubscribe, ..subscribe(Cluster, &["*"]) });
    client.pass(REMOVAL_GRACE);
    client.take(Cluster);
    assert_eq!(client.saw(), ["CDS +a", "CDS -a"]);
}

// The same where it goes only after the client has taken it, and could not be sent again before.
#[test]
fn what_was_under_way_when_a_wildcard_was_renewed_is_removed_when_it_goes_later() {
    let mut client = Client::new();
    client.give(&set([listener("d", 1)]));
    client.ask(Listener, &[]);
    client.ask(Cluster, &[]);
    assert_eq!(client.saw(), ["LDS +d", "CDS"]);
    client.request(&DeltaRequest {
        unsubscribe: vec!["*".to_owned()],
        ..subscribe(Listener, &["*"])
    });
    // The answer about clusters is not taken yet, so no listener is sent.
    client.take(Listener);
    client.give(&ResourceSet::default());
    client.take(Cluster);
    client.pass(REMOVAL_GRACE);
    client.take_all();
    assert_eq!(client.saw(), ["LDS -d"]);
    assert!(client.has.is_empty(), "{:?}", client.has);
}

// R30 is about a wildcard that stays.
#[test]
fn a_name_dropped_together_with_the_wildcard_is_not_answered() {
    for order in [["a", "*"], ["*", "a"]] {
        let mut client = Client::settled(&set([cluster("a", 1)]));
        client.ask(Cluster, &["a"]);
        client.take(Cluster);
        client.saw();
        client.drop_names(Cluster, &order);
        assert!(client.saw().is_empty(), "{order:?}");
    }
}

// R17, rule 9.
#[test]
fn a_stale_nonce_answers_nothing_and_its_subscriptions_count() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.give(&set([secret("s", 2), secret("t", 1), secret("u", 1)]));
    assert_eq!(client.saw(), ["SDS +s"]);
    for nonce in [1, 999] {
        let subscribe = vec!["u".to_owned()];
        client.request(&DeltaRequest { subscribe, ..answer(Secret, nonce, Some("stale")) });
    }
    assert!(client.saw().is_empty(), "the push of s is still under way, and not refused");
    client.take(Secret);
    assert_eq!(client.saw(), ["SDS +u"]);
}

// R18.
#[test]
fn one_message_may_answer_and_subscribe_and_unsubscribe() {
    let mut client = Client::settled(&set([secret("s", 1), secret("t", 1)]));
    client.give(&set([secret("s", 2), secret("t", 1), secret("u", 1)]));
    let nonce = client.open.remove(0).1.nonce;
    client.request(&DeltaRequest {
        subscribe: vec!["u".to_owned()],
        unsubscribe: vec!["t".to_owned()],
        ..answer(Secret, nonce, None)
    });
    client.give(&set([secret("s", 2), secret("t", 2), secret("u", 1)]));
    assert_eq!(client.saw(), ["SDS +s", "SDS +u"]);
}

// R40: also those that look like names of another kind.
#[test]
fn names_are_compared_byte_by_byte() {
    let (name, turned) = ("xdstp://a/b?x=1&y=2", "xdstp://a/b?y=2&x=1");
    let mut client = Client::settled(&set([endpoints(name, 1), endpoints("a", 1)]));
    client.ask(Endpoint, &["A", "a ", turned, name]);
    assert_eq!(client.saw(), [format!("EDS +{name} -A -a  -{turned}")]);
}
