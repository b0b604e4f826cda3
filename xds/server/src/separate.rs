//! Streams of the services that have one type only. They cannot see each other's ACKs, so what would be
//! an order on an aggregated stream is a short wait here. It is the best that can be done; whoever
//! wants traffic without a gap uses the aggregated service, as the protocol says.

use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_xds_wire::{ResourceSet, ResourceType};
use tokio::time::Instant;

use crate::stream::{Output, REMOVAL_GRACE};
use crate::variant::Variant;

/// How long after a change of clusters, that goes out on another stream, what refers to them follows.
pub(crate) const SEPARATE_DELAY: Duration = Duration::from_millis(50);

/// A stream that may be about one type only.
#[derive(Debug)]
pub(crate) struct Separate<V> {
    variant: V,
    /// That type; `None` on an aggregated stream.
    only: Option<ResourceType>,
    /// The newest set.
    newest: Option<ResourceSet>,
    /// When it is for the variant to see, if that is not done yet.
    due: Option<Instant>,
    /// The clusters that have changed since the variant was given a set.
    clusters: BTreeSet<Arc<str>>,
}

impl<V: Variant> Separate<V> {
    pub(crate) fn new(variant: V, only: Option<ResourceType>) -> Self {
        Self { variant, only, newest: None, due: None, clusters: BTreeSet::new() }
    }

    pub(crate) fn variant(&self) -> &V {
        &self.variant
    }

    pub(crate) fn on_request(
        &mut self,
        request: &V::Request,
        now: Instant,
    ) -> Vec<Output<V::Response>> {
        self.variant.on_request(request, now)
    }

    pub(crate) fn on_set(&mut self, set: ResourceSet, now: Instant) -> Vec<Output<V::Response>> {
        let old = match self.only {
            Some(_) => self.newest.replace(set.clone()),
            None => None,
        };
        let Some(old) = old else { return self.variant.on_set(set, now) };
        match self.only {
            // What no longer refers to a cluster is told on other streams.
            Some(ResourceType::Cluster) => {
                self.variant.defer_removals(now + REMOVAL_GRACE);
                return self.variant.on_set(set, now);
            }
            Some(ResourceType::Secret) | None => return self.variant.on_set(set, now),
            Some(ResourceType::Endpoint | ResourceType::Listener | ResourceType::Route) => {}
        }
        self.clusters.extend(set.changed_since(&old, ResourceType::Cluster));
        if self.clusters.is_empty() {
            return self.variant.on_set(set, now);
        }
        self.due.get_or_insert(now + SEPARATE_DELAY);
        Vec::new()
    }

    pub(crate) fn on_timeout(&mut self, now: Instant) -> Vec<Output<V::Response>> {
        let mut outputs = self.variant.on_timeout(now);
        let is_due = self.due.is_some_and(|due| now >= due);
        let Some(set) = self.newest.clone().filter(|_| is_due) else { return outputs };
        self.due = None;
        // Envoy warms a changed cluster until it is told its endpoints, and does not ask for those
        // that it is subscribed to already (rule 1).
        let mut clusters = std::mem::take(&mut self.clusters);
        clusters.retain(|name| set.contains(ResourceType::Endpoint, name));
        if self.only == Some(ResourceType::Endpoint) {
            self.variant.resend_endpoints(&clusters);
        }
        outputs.extend(self.variant.on_set(set, now));
        outputs
    }

    pub(crate) fn deadline(&self) -> Option<Instant> {
        self.variant.deadline().into_iter().chain(self.due).min()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use ironmesh_xds_wire::{
        DeltaRequest,
        ResourceType::{Cluster, Endpoint, Route},
        SotwRequest,
    };

    use super::*;
    use crate::delta::DeltaStream;
    use crate::sotw::SotwStream;
    use crate::test_resources::{cluster, endpoints, route, set};

    /// The names of what comes when the stream is given a set, at once and after the delay.
    fn pushed<V: Variant>(
        stream: &mut Separate<V>,
        set: ResourceSet,
        now: &mut Instant,
        names: impl Fn(&V::Response) -> Vec<String>,
    ) -> [Vec<String>; 2] {
        let names = |outputs: Vec<Output<V::Response>>| {
            let sent = outputs.iter().filter_map(|output| match output {
                Output::Send(response) => Some(names(response)),
                _ => None,
            });
            sent.flatten().collect()
        };
        let at_once = names(stream.on_set(set, *now));
        *now += SEPARATE_DELAY;
        [at_once, names(stream.on_timeout(*now))]
    }

    fn delta(only: ResourceType, first: ResourceSet, now: Instant) -> Separate<DeltaStream> {
        let mut stream = Separate::new(DeltaStream::new(&BTreeMap::new()), Some(only));
        stream.on_set(first, now);
        let subscribe = vec!["a".to_owned(), "b".to_owned()];
        let type_url = only.url().to_owned();
        stream.on_request(&DeltaRequest { type_url, subscribe, ..DeltaRequest::default() }, now);
        let nonce = "1".to_owned();
        let type_url = only.url().to_owned();
        stream.on_request(&DeltaRequest { type_url, nonce, ..DeltaRequest::default() }, now);
        stream
    }

    fn of_delta(response: &ironmesh_xds_wire::DeltaResponse) -> Vec<String> {
        let added = response.resources.iter().map(|resource| format!("+{}", resource.name()));
        added.chain(response.removed.iter().map(|name| format!("-{name}"))).collect()
    }

    // Rule 1: the stream cannot see that the cluster was sent.
    #[test]
    fn endpoints_follow_a_changed_cluster_on_a_stream_of_their_own() {
        let mut now = Instant::now();
        let all = |a| set([cluster("a", a), endpoints("a", 1), cluster("b", 1), endpoints("b", 1)]);
        let mut stream = delta(Endpoint, all(1), now);
        let [at_once, later] = pushed(&mut stream, all(2), &mut now, of_delta);
        assert_eq!((at_once, later), (vec![], vec!["+a".to_owned()]));

        let mut stream =
            Separate::new(SotwStream::new(&BTreeMap::new(), BTreeMap::new()), Some(Endpoint));
        stream.on_set(all(1), now);
        let mut request = SotwRequest {
            type_url: Endpoint.url().to_owned(),
            names: vec!["a".to_owned(), "b".to_owned()],
            ..SotwRequest::default()
        };
        stream.on_request(&request, now);
        request.nonce = "1".to_owned();
        stream.on_request(&request, now);
        let names = |response: &ironmesh_xds_wire::SotwResponse| {
            response.resources.iter().map(|resource| resource.name().to_string()).collect()
        };
        let [at_once, later] = pushed(&mut stream, all(2), &mut now, names);
        assert_eq!((at_once, later), (vec![], vec!["a".to_owned()]));
    }

    // Also where the cluster is by now what it was: Envoy may have been told of both changes.
    #[test]
    fn endpoints_follow_a_cluster_that_changed_back_within_the_delay() {
        let mut now = Instant::now();
        let all = |a| set([cluster("a", a), endpoints("a", 1)]);
        let mut stream = delta(Endpoint, all(1), now);
        assert!(stream.on_set(all(2), now).is_empty());
        let [at_once, later] = pushed(&mut stream, all(1), &mut now, of_delta);
        assert_eq!((at_once, later), (vec![], vec!["+a".to_owned()]));
    }

    #[test]
    fn endpoints_alone_do_not_wait() {
        let mut now = Instant::now();
        let all = |content| set([cluster("a", 1), endpoints("a", content)]);
        let mut stream = delta(Endpoint, all(1), now);
        let [at_once, later] = pushed(&mut stream, all(2), &mut now, of_delta);
        assert_eq!((at_once, later), (vec!["+a".to_owned()], vec![]));
        assert_ne!(stream.deadline(), Some(now));
    }

    // R54, as far as it goes.
    #[test]
    fn routes_give_new_clusters_a_moment() {
        let mut now = Instant::now();
        let mut stream = delta(Route, set([route("a", 1)]), now);
        let with_cluster = set([cluster("c", 1), route("a", 2)]);
        let [at_once, later] = pushed(&mut stream, with_cluster, &mut now, of_delta);
        assert_eq!((at_once, later), (vec![], vec!["+a".to_owned()]));
    }

    // R53, as far as it goes.
    #[test]
    fn clusters_go_a_moment_later() {
        let mut now = Instant::now();
        let mut stream = delta(Cluster, set([cluster("a", 1), cluster("b", 1)]), now);
        now += REMOVAL_GRACE;
        stream.on_timeout(now);
        let [at_once, later] = pushed(&mut stream, set([cluster("b", 1)]), &mut now, of_delta);
        assert_eq!((at_once, later), (vec![], vec![]));
        now += REMOVAL_GRACE;
        let outputs = stream.on_timeout(now);
        let [Output::Send(response)] = &outputs[..] else { panic!("{outputs:?}") };
        assert_eq!(of_delta(response), ["-a"]);
    }
}
