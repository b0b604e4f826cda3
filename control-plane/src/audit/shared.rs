//! The denied calls of all control planes: what this one publishes of its own, in bounds, and their sum.
//!
//! It decides nothing about calls, and does no IO.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;

use ironmesh_admin::{AuditView, DeniedRequest, DeniedView, OthersView};
use ironmesh_catalog::{ServiceAccount, ServicePort};

use super::denied_calls::MAX_KINDS;

/// What the name of each chunk with denied calls begins with.
pub(crate) const PREFIX: &str = "audit/";

/// The number of chunks: a change rewrites a part of them.
const BUCKETS: u8 = 16;

/// The most pairs of caller and service port that are published by name, and the most ports of further callers. A pair
/// takes at most 4 KiB, so a chunk stays below the bound of the exchange.
const MAX_PUBLISHED: usize = 512;

/// The chunks that were published last.
#[derive(Debug, Default)]
pub(crate) struct AuditChunks(BTreeMap<String, Vec<u8>>);

impl AuditChunks {
    /// The chunks that differ from those published last, each with its content; none if it is empty now.
    pub(crate) fn replace(&mut self, view: AuditView) -> Vec<(String, Option<Vec<u8>>)> {
        let mut parts = BTreeMap::<u8, AuditView>::new();
        let none = || AuditView { since: view.since, denied: Vec::new(), others: Vec::new() };
        let mut others = OtherCalls::default();
        others.add_all(view.others);
        for (number, denied) in view.denied.into_iter().enumerate() {
            if number < MAX_PUBLISHED {
                parts.entry(bucket(&denied)).or_insert_with(none).denied.push(denied);
            } else {
                others.add_denied(denied);
            }
        }
        if !others.0.is_empty() {
            let others = others.into_views().into_iter().take(MAX_PUBLISHED).collect();
            parts.entry(0).or_insert_with(none).others = others;
        }
        // Names and timestamps become JSON.
        let chunk = |(number, part): (u8, AuditView)| {
            Some((format!("{PREFIX}{number:02}"), serde_json::to_vec(&part).ok()?))
        };
        let new: BTreeMap<_, _> = parts.into_iter().filter_map(chunk).collect();
        let gone = self.0.keys().filter(|name| !new.contains_key(*name));
        let gone = gone.map(|name| (name.clone(), None));
        let changed = new.iter().filter(|(name, content)| self.0.get(*name) != Some(content));
        let changed = changed.map(|(name, content)| (name.clone(), Some(content.clone())));
        let all = gone.chain(changed).collect();
        self.0 = new;
        all
    }
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
        for one in peer.denied {
            let key = key(&one);
            if !is_audited(&key) {
                continue;
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
            if request.last_seen > known.last_seen {
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

    #[test]
    fn pairs_beyond_the_bound_are_published_as_counts() {
        let mut chunks = AuditChunks::default();
        let pair = |number: usize| denied(&format!("c{number}"), 80, "/a", 1);
        let all: Vec<_> = (0..MAX_PUBLISHED + 3).map(pair).collect();
        let published = chunks.replace(view(1, all.clone()));
        let parse = |content: &Vec<u8>| serde_json::from_slice::<AuditView>(content).unwrap();
        let parts: Vec<_> =
            published.iter().map(|(_, content)| parse(content.as_ref().unwrap())).collect();
        assert_eq!(parts.iter().map(|part| part.denied.len()).sum::<usize>(), MAX_PUBLISHED);
        assert_eq!(parts.iter().flat_map(|part| &part.others).map(|one| one.count).sum::<u64>(), 6);
        assert_eq!(chunks.replace(view(1, all.clone())), [], "nothing has changed");
        let mut more = all;
        more[0].count += 1;
        assert_eq!(chunks.replace(view(1, more)).len(), 1);
        let emptied = chunks.replace(view(1, Vec::new()));
        assert!(
            emptied.len() == parts.len() && emptied.iter().all(|(_, content)| content.is_none())
        );
    }
}
