//! A bounded map of pairs, shared fairly by the proxies that report them.
//!
//! Each pair counts for the proxy that reported it first. When the map is full, an entry of the largest share yields to
//! one of a smaller share. So a proxy that reports very much leaves to each other proxy what that one has to report,
//! up to an equal share.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::ProxyId;

use super::CallPair;

/// The bounded map.
#[derive(Debug)]
pub(super) struct FairShareMap<T> {
    /// The most pairs.
    most: usize,
    pairs: BTreeMap<CallPair, (ProxyId, T)>,
    shares: BTreeMap<ProxyId, BTreeSet<CallPair>>,
    /// The proxies with a share, ordered by its size.
    sizes: BTreeSet<(usize, ProxyId)>,
}

impl<T> FairShareMap<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, pairs: BTreeMap::new(), shares: BTreeMap::new(), sizes: BTreeSet::new() }
    }

    pub(super) fn contains(&self, pair: &CallPair) -> bool {
        self.pairs.contains_key(pair)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&CallPair, &T)> {
        self.pairs.iter().map(|(pair, (_, known))| (pair, known))
    }

    /// Whether a new pair that `reporter` reports would be kept.
    pub(super) fn has_capacity_for(&self, reporter: ProxyId) -> bool {
        self.pairs.len() < self.most || self.eviction_for(reporter).is_some()
    }

    /// Adds what `reporter` reports of a pair, by `merge` if the pair is known. Returns what is not kept: this, or the
    /// entry that yields to it.
    pub(super) fn add(
        &mut self,
        reporter: ProxyId,
        pair: CallPair,
        reported: T,
        merge: impl FnOnce(&mut T, T),
    ) -> Option<(CallPair, T)> {
        if let Some((_, known)) = self.pairs.get_mut(&pair) {
            merge(known, reported);
            return None;
        }
        let mut out = None;
        if self.pairs.len() >= self.most {
            let Some(other) = self.eviction_for(reporter).cloned() else {
                return Some((pair, reported));
            };
            out = self.remove(&other).map(|known| (other, known));
        }
        self.resize(reporter, |share| share.insert(pair.clone()));
        self.pairs.insert(pair, (reporter, reported));
        out
    }

    /// Keeps the entries for which `keep` returns true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&CallPair, &mut T) -> bool) {
        let mut gone = Vec::new();
        for (pair, (_, known)) in &mut self.pairs {
            if !keep(pair, known) {
                gone.push(pair.clone());
            }
        }
        for pair in gone {
            self.remove(&pair);
        }
    }

    /// The entry of the largest share that yields to a new one of `reporter`, if that makes the shares more equal.
    /// (Otherwise two proxies could evict each other's entries without end.)
    fn eviction_for(&self, reporter: ProxyId) -> Option<&CallPair> {
        let (largest, proxy) = self.sizes.last()?;
        let own = self.shares.get(&reporter).map_or(0, BTreeSet::len);
        (own + 1 < *largest).then(|| self.shares.get(proxy)?.last())?
    }

    fn remove(&mut self, pair: &CallPair) -> Option<T> {
        let (reporter, known) = self.pairs.remove(pair)?;
        self.resize(reporter, |share| share.remove(pair));
        Some(known)
    }

    fn resize(&mut self, reporter: ProxyId, change: impl FnOnce(&mut BTreeSet<CallPair>) -> bool) {
        let share = self.shares.entry(reporter).or_default();
        self.sizes.remove(&(share.len(), reporter));
        change(share);
        if share.is_empty() {
            self.shares.remove(&reporter);
        } else {
            self.sizes.insert((share.len(), reporter));
        }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{ServiceAccount, ServicePort};
    use uuid::Uuid;

    use super::*;

    /// The entries, as reporter and port number.
    fn kept(map: &FairShareMap<u128>) -> Vec<(u128, u16)> {
        map.iter().map(|((_, port), reporter)| (*reporter, port.port)).collect()
    }

    /// Reports a pair, and returns the port number of the entry that is not kept.
    fn report_call(map: &mut FairShareMap<u128>, reporter: u128, number: u16) -> Option<u16> {
        let account: ServiceAccount = "shop/buyer".parse().unwrap();
        let port = ServicePort::new("shop/till".parse().unwrap(), number);
        let proxy = ProxyId(Uuid::from_u128(reporter));
        let had_capacity = map.has_capacity_for(proxy);
        let out = map.add(proxy, (account, port), reporter, |_, _| ());
        let out = out.map(|((_, port), _)| port.port);
        assert!(had_capacity || out.is_none_or(|out| out == number));
        out
    }

    #[test]
    fn largest_share_is_evicted_until_shares_are_equal() {
        let mut map = FairShareMap::new(6);
        for number in 0..6 {
            assert_eq!(report_call(&mut map, 1, number), None);
        }
        assert_eq!(report_call(&mut map, 1, 6), Some(6), "it displaces nothing of its own");
        assert_eq!(report_call(&mut map, 1, 0), None, "a known pair needs no space");
        assert_eq!(report_call(&mut map, 2, 10), Some(5));
        assert_eq!(report_call(&mut map, 2, 11), Some(4));
        assert_eq!(report_call(&mut map, 2, 12), Some(3));
        assert_eq!(report_call(&mut map, 2, 13), Some(13));
        assert_eq!(report_call(&mut map, 1, 3), Some(3));
        assert_eq!(kept(&map), [(1, 0), (1, 1), (1, 2), (2, 10), (2, 11), (2, 12)]);
        assert_eq!(report_call(&mut map, 3, 20), Some(12));
        assert_eq!(report_call(&mut map, 2, 12), Some(12), "it would only swap the shares");
        map.retain(|(_, port), _| port.port >= 20);
        assert_eq!((kept(&map), map.shares.len()), (vec![(3, 20)], 1));
        assert_eq!(map.sizes.len(), 1);
    }
}
