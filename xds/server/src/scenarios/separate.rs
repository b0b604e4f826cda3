//! Streams of one type each, which cannot see each other.

use ironmesh_xds_wire::ResourceType::{Cluster, Endpoint, Route};
use ironmesh_xds_wire::{ResourceSet, ResourceType};
use tokio::time::Instant;

use super::client::Client;
use super::dialect::Dialect;
use crate::separate::{SEPARATE_DELAY, Separate};
use crate::stream::{REMOVAL_GRACE, StreamOutput};
use crate::test_resources::{cluster, endpoints, route, set};

in_both_variants! {
    endpoints_on_separate_stream_follow_a_changed_cluster,
    endpoints_follow_cluster_change_reverted_within_the_delay,
    endpoints_only_change_is_pushed_without_delay,
    route_change_with_a_new_cluster_is_delayed,
    cluster_removal_on_separate_stream_is_delayed,
}

/// A stream of one type, whose client is subscribed to a and b and has ACKed the first push.
fn stream<V: Dialect>(only: ResourceType, first: ResourceSet, now: Instant) -> Separate<V> {
    let mut stream = Separate::new(V::fresh(), Some(only));
    stream.on_set(first, now);
    let mut client = Client::new();
    stream.on_request(&V::change(&mut client, only, &["a", "b"], &[]), now);
    let again = V::change(&mut client, only, &[], &[]);
    stream.on_request(&V::answering(again, "1", None), now);
    stream
}

/// The names in the responses.
fn sent<V: Dialect>(outputs: Vec<StreamOutput<V::Response>>) -> Vec<String> {
    let mut names = Vec::new();
    for output in outputs {
        if let StreamOutput::Send(response) = output {
            let response = V::read(response);
            names.extend(response.resources.iter().map(|resource| format!("+{}", resource.name())));
            names.extend(response.removed.iter().map(|name| format!("-{name}")));
        }
    }
    names
}

/// What a published set pushes, at once and after the delay.
fn pushed<V: Dialect>(
    stream: &mut Separate<V>,
    set: ResourceSet,
    now: &mut Instant,
) -> [Vec<String>; 2] {
    let at_once = sent::<V>(stream.on_set(set, *now));
    *now += SEPARATE_DELAY;
    [at_once, sent::<V>(stream.on_timeout(*now))]
}

/// Rule 1, R55: the stream cannot see that the cluster was sent.
fn endpoints_on_separate_stream_follow_a_changed_cluster<V: Dialect>() {
    let mut now = Instant::now();
    let all = |a| set([cluster("a", a), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)]);
    let mut stream = stream::<V>(Endpoint, all(1), now);
    let [at_once, later] = pushed(&mut stream, all(2), &mut now);
    assert_eq!((at_once, later), (vec![], vec!["+a".to_owned()]));
}

/// Rule 1: even if the cluster is as before by now. Envoy may have received both changes.
fn endpoints_follow_cluster_change_reverted_within_the_delay<V: Dialect>() {
    let mut now = Instant::now();
    let all = |a| set([cluster("a", a), endpoints("a", 1)]);
    let mut stream = stream::<V>(Endpoint, all(1), now);
    assert!(stream.on_set(all(2), now).is_empty());
    let [at_once, later] = pushed(&mut stream, all(1), &mut now);
    assert_eq!((at_once, later), (vec![], vec!["+a".to_owned()]));
}

/// R51: as far as possible.
fn endpoints_only_change_is_pushed_without_delay<V: Dialect>() {
    let mut now = Instant::now();
    let all = |content| set([cluster("a", 1), endpoints("a", content)]);
    let mut stream = stream::<V>(Endpoint, all(1), now);
    let [at_once, later] = pushed(&mut stream, all(2), &mut now);
    assert_eq!((at_once, later), (vec!["+a".to_owned()], vec![]));
    assert_ne!(stream.deadline(), Some(now));
}

/// R54: as far as possible.
fn route_change_with_a_new_cluster_is_delayed<V: Dialect>() {
    let mut now = Instant::now();
    let mut stream = stream::<V>(Route, set([route("a", 1)]), now);
    let with_cluster = set([cluster("c", 1), route("a", 2)]);
    let [at_once, later] = pushed(&mut stream, with_cluster, &mut now);
    assert_eq!((at_once, later), (vec![], vec!["+a".to_owned()]));
}

/// R53: as far as possible.
fn cluster_removal_on_separate_stream_is_delayed<V: Dialect>() {
    let mut now = Instant::now();
    let mut stream = stream::<V>(Cluster, set([cluster("a", 1), cluster("b", 1)]), now);
    now += REMOVAL_GRACE;
    stream.on_timeout(now);
    let [at_once, later] = pushed(&mut stream, set([cluster("b", 1)]), &mut now);
    assert_eq!((at_once, later), (vec![], vec![]));
    now += REMOVAL_GRACE;
    let gone = sent::<V>(stream.on_timeout(now));
    assert_eq!(
        gone,
        [V::either("-a", "+b")],
        "delta names the removed cluster, state-of-the-world the remaining one"
    );
}
