//! The denied calls of all control planes: what this one publishes of its own, in bounds, and their sum.
//!
//! It decides nothing about calls, and does no IO.

use std::collections::btree_map::Entry;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_api::{AuditView, DeniedRequest, DeniedView, OthersView};
use ironmesh_catalog::{ServiceAccount, ServiceName, ServicePort};
use tokio::time::Instant;

use super::CallPair;
use super::denied_calls::MAX_KINDS;

/// What the name of each chunk with denied calls begins with.
pub(crate) const PREFIX: &str = "audit/";

/// The number of chunks: a change rewrites a part of them.
const BUCKETS: u8 = 16;

/// The most bytes of the pairs that are published by name, about; further ones are published as counts. What changes them
/// each time may rewrite all of them, and the history of etcd has a quota.
const MAX_BYTES: usize = 96 << 10;

/// The most ports of further callers that are published, of at most some 250 bytes each.
const MAX_OTHERS: usize = 128;

/// How often a chunk is rewritten in which only counts and times have changed. Calls are counted all the time.
const COUNT_INTERVAL: Duration = Duration::from_secs(60);

/// What is in a chunk, without its counts: the pairs, and the ports of further callers.
type ChunkNames = (BTreeSet<CallPair>, BTreeSet<ServicePort>);

/// The chunks that were published last.
#[derive(Debug, Default)]
pub(crate) struct AuditChunks {
    published: BTreeMap<u8, PublishedChunk>,
    /// Whether changed counts have not been published yet.
    is_behind: bool,
}

/// A chunk, as it was published last.
#[derive(Debug)]
struct PublishedChunk {
    at: Instant,
    names: ChunkNames,
    content: Vec<u8>,
}

impl AuditChunks {
    /// Whether changed counts have not been published yet, so that [`replace`](Self::replace) is needed again.
    pub(crate) fn is_behind(&self) -> bool {
        self.is_behind
    }

    /// The chunks to publish at this time, each with its content; none if it is empty now. A chunk with new pairs, or
    /// without earlier ones, is published at once; one with changed counts once a minute at most.
    pub(crate) fn replace(
        &mut self,
        view: AuditView,
        now: Instant,
    ) -> Vec<(String, Option<Vec<u8>>)> {
        let parts = parts(view);
        self.is_behind = false;
        let mut changed = Vec::new();
        self.published.retain(|number, _| {
            let stays = parts.contains_key(number);
            if !stays {
                changed.push((chunk_name(*number), None));
            }
            stays
        });
        for (number, part) in parts {
            // Names and timestamps become JSON.
            let Ok(content) = serde_json::to_vec(&part) else { continue };
            let names = names(&part);
            if let Some(known) = self.published.get(&number) {
                if known.content == content {
                    continue;
                }
                if known.names == names && now < known.at + COUNT_INTERVAL {
                    self.is_behind = true;
                    continue;
                }
            }
            changed.push((chunk_name(number), Some(content.clone())));
            self.published.insert(number, PublishedChunk { at: now, names, content });
        }
        changed
    }
}

/// The parts of a view that are published, by chunk.
fn parts(view: AuditView) -> BTreeMap<u8, AuditView> {
    let mut parts = BTreeMap::<u8, AuditView>::new();
    let none = || AuditView { since: view.since, denied: Vec::new(), others: Vec::new() };
    let mut others = OtherCalls::default();
    others.add_all(view.others);
    let mut bytes = 0;
    for mut denied in view.denied {
        for request in &mut denied.requests {
            // It differs at each call, and may be long.
            request.example.clear();
        }
        bytes += size(&denied);
        if bytes <= MAX_BYTES {
            parts.entry(bucket(&denied)).or_insert_with(none).denied.push(denied);
        } else {
            others.add_denied(denied);
        }
    }
    if !others.0.is_empty() {
        let others = others.into_views().into_iter().take(MAX_OTHERS).collect();
        parts.entry(0).or_insert_with(none).others = others;
    }
    parts
}

/// The size of a pair as JSON, about. It depends on names alone, so that growing counts move no pair.
fn size(denied: &DeniedView) -> usize {
    let names = denied.caller.to_string().len() + denied.service.to_string().len();
    let requests = denied.requests.iter().map(|one| 180 + one.method.len() + one.path.len());
    200 + names + requests.sum::<usize>()
}

fn names(part: &AuditView) -> ChunkNames {
    let port = |service: &ServiceName, port| ServicePort::new(service.clone(), port);
    let pairs = part.denied.iter().map(|one| (one.caller.clone(), port(&one.service, one.port)));
    (pairs.collect(), part.others.iter().map(|one| port(&one.service, one.port)).collect())
}

fn chunk_name(number: u8) -> String {
    format!("{PREFIX}{number:02}")
}

/// The same for the same pair, always.
fn bucket(denied: &DeniedView) -> u8 {
    let text = format!("{} {}|{}", denied.caller, denied.service, denied.port);
    text.bytes().fold(0, u8::wrapping_add) % BUCKETS
}

/// Adds the denied calls that peers publish to `own`, as far as `is_audited` says so of caller and port: a peer may have an
/// earlier policy.
pub(super) fn sum(
    own: AuditView,
    peers: Vec<AuditView>,
    is_audited: impl Fn(&(ServiceAccount, ServicePort)) -> bool,
) -> AuditView {
    let mut since = own.since;
    let mut pairs = BTreeMap::new();
    let mut others = OtherCalls::default();
    let key =
        |one: &DeniedView| (one.caller.clone(), ServicePort::new(one.service.clone(), one.port));
    for one in own.denied {
        pairs.insert(key(&one), one);
    }
    others.add_all(own.others);
    for peer in peers {
        since = since.min(peer.since);
        others.add_all(peer.others);
        for mut one in peer.denied {
            let key = key(&one);
            if !is_audited(&key) {
                continue;
            }
            // It publishes no example of a path.
            for request in one.requests.iter_mut().filter(|request| request.example.is_empty()) {
                request.example.clone_from(&request.path);
            }
            match pairs.entry(key) {
                Entry::Vacant(entry) => {
                    entry.insert(one);
                }
                Entry::Occupied(mut occupied) => add(occupied.get_mut(), one),
            }
        }
    }
    let mut denied: Vec<_> = pairs.into_values().collect();
    denied.sort_by(|a, b| (&a.service, a.port).cmp(&(&b.service, b.port)));
    AuditView { since, denied, others: others.into_views() }
}

/// Adds the calls of one pair.
fn add(sum: &mut DeniedView, more: DeniedView) {
    sum.count = sum.count.saturating_add(more.count);
    sum.first_seen = sum.first_seen.min(more.first_seen);
    sum.last_seen = sum.last_seen.max(more.last_seen);
    for request in more.requests {
        let is_it = |known: &&mut DeniedRequest| {
            known.method == request.method && known.path == request.path
        };
        if let Some(known) = sum.requests.iter_mut().find(is_it) {
            // A peer publishes the beginning of the path alone.
            let is_whole = request.example != request.path;
            if is_whole && request.last_seen > known.last_seen {
                known.example = request.example;
            }
            known.count = known.count.saturating_add(request.count);
            known.first_seen = known.first_seen.min(request.first_seen);
            known.last_seen = known.last_seen.max(request.last_seen);
        } else if sum.requests.len() < MAX_KINDS {
            sum.requests.push(request);
        }
    }
}

/// The calls of further callers, by port.
#[derive(Debug, Default)]
struct OtherCalls(BTreeMap<ServicePort, OthersView>);

impl OtherCalls {
    fn add_all(&mut self, others: Vec<OthersView>) {
        for more in others {
            let port = ServicePort::new(more.service.clone(), more.port);
            match self.0.entry(port) {
                Entry::Vacant(entry) => {
                    entry.insert(more);
                }
                Entry::Occupied(mut occupied) => {
                    let sum = occupied.get_mut();
                    sum.count = sum.count.saturating_add(more.count);
                    sum.last_seen = sum.last_seen.max(more.last_seen);
                }
            }
        }
    }

    fn add_denied(&mut self, denied: DeniedView) {
        let DeniedView { service, port, count, last_seen, .. } = denied;
        self.add_all(vec![OthersView { service, port, count, last_seen }]);
    }

    fn into_views(self) -> Vec<OthersView> {
        self.0.into_values().collect()
    }
}

#[cfg(test)]
mod tests {
    use jiff::Timestamp;

    use super::*;

    fn at(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// Denied requests of the path `path`, reported at this second.
    fn denied(caller: &str, port: u16, path: &str, second: i64) -> DeniedView {
        let request = DeniedRequest {
            method: "GET".to_owned(),
            path: path.to_owned(),
            example: format!("{path}/{second}"),
            count: 2,
            first_seen: at(second),
            last_seen: at(second),
        };
        DeniedView {
            caller: format!("shop/{caller}").parse().unwrap(),
            service: "shop/till".parse().unwrap(),
            port,
            count: 2,
            first_seen: at(second),
            last_seen: at(second),
            requests: vec![request],
        }
    }

    fn view(since: i64, denied: Vec<DeniedView>) -> AuditView {
        AuditView { since: at(since), denied, others: Vec::new() }
    }

    #[test]
    fn calls_at_all_control_planes_are_summed_once_per_pair() {
        let own = view(5, vec![denied("buyer", 80, "/a", 10)]);
        let peers = vec![
            view(3, vec![denied("buyer", 80, "/a", 20), denied("gone", 80, "/a", 20)]),
            view(9, vec![denied("buyer", 80, "/b", 7), denied("other", 80, "/a", 7)]),
        ];
        let sum = sum(own, peers, |(caller, _)| caller.to_string() != "shop/gone");
        assert_eq!(sum.since, at(3));
        let counts: Vec<_> =
            sum.denied.iter().map(|one| (one.caller.to_string(), one.count)).collect();
        assert_eq!(counts, [("shop/buyer".to_owned(), 6), ("shop/other".to_owned(), 2)]);
        let buyer = &sum.denied[0];
        assert_eq!((buyer.first_seen, buyer.last_seen), (at(7), at(20)));
        let requests: Vec<_> =
            buyer.requests.iter().map(|one| (one.example.as_str(), one.count)).collect();
        assert_eq!(requests, [("/a/20", 4), ("/b/7", 2)]);
    }

    /// The pairs, the requests and the counts of further callers in published chunks.
    fn parsed(published: &[(String, Option<Vec<u8>>)]) -> Vec<AuditView> {
        let contents = published.iter().filter_map(|(_, content)| content.as_ref());
        contents.map(|content| serde_json::from_slice(content).unwrap()).collect()
    }

    #[test]
    fn pairs_beyond_the_bound_are_published_as_counts() {
        let mut chunks = AuditChunks::default();
        // The longest: with a path of 64 bytes in each kind, and an example of 256.
        let pair = |number: usize| {
            let mut pair = denied(&format!("c{number}"), 80, &"x".repeat(64), 1);
            pair.requests[0].example = "y".repeat(256);
            pair.requests = vec![pair.requests[0].clone(); MAX_KINDS];
            pair
        };
        let all: Vec<_> = (0..1000).map(pair).collect();
        let published = chunks.replace(view(1, all), Instant::now());
        let bytes: usize = published.iter().flat_map(|(_, content)| content).map(Vec::len).sum();
        assert!((64 << 10..128 << 10).contains(&bytes), "{bytes}");
        let parts = parsed(&published);
        let named: usize = parts.iter().map(|part| part.denied.len()).sum();
        let others: u64 = parts.iter().flat_map(|part| &part.others).map(|one| one.count).sum();
        assert!(named > 30, "{named}");
        assert_eq!(others, 2 * (1000 - named as u64));
        let ports = (1..2000).map(|port| denied("c", port, "/a", 1)).collect();
        let published = AuditChunks::default().replace(view(1, ports), Instant::now());
        let bytes: usize = published.iter().flat_map(|(_, content)| content).map(Vec::len).sum();
        assert!(bytes < 128 << 10, "{bytes}");
    }

    #[test]
    fn new_pairs_are_published_at_once_and_counts_once_a_minute() {
        let (mut chunks, begin) = (AuditChunks::default(), Instant::now());
        let mut all: Vec<_> = (0..50).map(|one| denied(&format!("c{one}"), 80, "/a", 1)).collect();
        let published = chunks.replace(view(1, all.clone()), begin);
        let count = published.len();
        assert!(count > usize::from(BUCKETS) / 2, "{count}");
        let sent = parsed(&published);
        let mut requests = sent.iter().flat_map(|part| &part.denied).flat_map(|one| &one.requests);
        assert!(requests.all(|one| one.path == "/a" && one.example.is_empty()));
        assert_eq!(chunks.replace(view(1, all.clone()), begin), [], "nothing has changed");
        assert!(!chunks.is_behind());

        // Every pair is called all the time.
        let mut written = 0;
        for second in (5..60).step_by(5) {
            for one in &mut all {
                (one.count, one.last_seen) = (one.count + 1, at(second));
                one.requests[0].example = format!("/a/{second}");
            }
            let now = begin + Duration::from_secs(second.unsigned_abs());
            written += chunks.replace(view(1, all.clone()), now).len();
            assert!(chunks.is_behind());
        }
        assert_eq!(written, 0);
        // In the chunk of `c0`.
        all.push(denied("c00", 80, "/a", 59));
        let now = begin + Duration::from_secs(59);
        let published = chunks.replace(view(1, all.clone()), now);
        assert_eq!(published.len(), 1, "the chunk with the new pair");
        assert!(parsed(&published)[0].denied.iter().any(|one| one.count > 2), "and its counts");
        let published = chunks.replace(view(1, all.clone()), begin + COUNT_INTERVAL);
        assert_eq!(published.len(), count - 1);
        assert!(!chunks.is_behind(), "that of the new pair was published with its counts");

        all.pop();
        assert_eq!(chunks.replace(view(1, all), begin + COUNT_INTERVAL).len(), 1);
        let emptied = chunks.replace(view(1, Vec::new()), begin + COUNT_INTERVAL);
        assert_eq!(emptied.len(), count);
        assert!(emptied.iter().all(|(_, content)| content.is_none()));
    }

    #[test]
    fn request_at_a_peer_is_shown_by_the_beginning_of_its_path() {
        let mut peer = denied("buyer", 80, "/a", 20);
        peer.requests[0].example.clear();
        let one = sum(view(1, Vec::new()), vec![view(1, vec![peer.clone()])], |_| true);
        assert_eq!(one.denied[0].requests[0].example, "/a");
        let own = view(1, vec![denied("buyer", 80, "/a", 10)]);
        let both = sum(own, vec![view(1, vec![peer])], |_| true);
        let request = &both.denied[0].requests[0];
        assert_eq!((request.example.as_str(), request.count), ("/a/10", 4));
    }
}
