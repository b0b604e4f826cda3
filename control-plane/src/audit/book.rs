//! A bounded map of pairs, shared fairly by the proxies that report them.
//!
//! Each pair counts for the proxy that reported it first. When the map is full, an entry of the largest share yields to
//! one of a smaller share. So a proxy that reports very much leaves to each other proxy what that one has to report,
//! up to an equal share.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_catalog::ProxyId;

use super::Pair;

/// The bounded map.
#[derive(Debug)]
pub(super) struct Book<T> {
    /// The most pairs.
    most: usize,
    pairs: BTreeMap<Pair, (ProxyId, T)>,
    shares: BTreeMap<ProxyId, BTreeSet<Pair>>,
    /// The proxies with a share, ordered by its size.
    sizes: BTreeSet<(usize, ProxyId)>,
}

impl<T> Book<T> {
    pub(super) fn new(most: usize) -> Self {
        Self { most, pairs: BTreeMap::new(), shares: BTreeMap::new(), sizes: BTreeSet::new() }
    }

    pub(super) fn contains(&self, pair: &Pair) -> bool {
        self.pairs.contains_key(pair)
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&Pair, &T)> {
        self.pairs.iter().map(|(pair, (_, known))| (pair, known))
    }

    /// Whether a new pair that `teller` reports would be kept.
    pub(super) fn has_room_for(&self, teller: ProxyId) -> bool {
        self.pairs.len() < self.most || self.gives_way_to(teller).is_some()
    }

    /// Adds what `teller` reports of a pair, by `join` if the pair is known. Returns what is not kept: this, or the
    /// entry that yields to it.
    pub(super) fn add(
        &mut self,
        teller: ProxyId,
        pair: Pair,
        told: T,
        join: impl FnOnce(&mut T, T),
    ) -> Option<(Pair, T)> {
        if let Some((_, known)) = self.pairs.get_mut(&pair) {
            join(known, told);
            return None;
        }
        let mut out = None;
        if self.pairs.len() >= self.most {
            let Some(other) = self.gives_way_to(teller).cloned() else { return Some((pair, told)) };
            out = self.remove(&other).map(|known| (other, known));
        }
        self.resize(teller, |share| share.insert(pair.clone()));
        self.pairs.insert(pair, (teller, told));
        out
    }

    /// Keeps the entries for which `keep` returns true.
    pub(super) fn retain(&mut self, mut keep: impl FnMut(&Pair, &mut T) -> bool) {
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

    /// The entry of the largest share that yields to a new one of `teller`, if that makes the shares more equal.
    /// (Otherwise two proxies could evict each other's entries without end.)
    fn gives_way_to(&self, teller: ProxyId) -> Option<&Pair> {
        let (largest, proxy) = self.sizes.last()?;
        let own = self.shares.get(&teller).map_or(0, BTreeSet::len);
        (own + 1 < *largest).then(|| self.shares.get(proxy)?.last())?
    }

    fn remove(&mut self, pair: &Pair) -> Option<T> {
        let (teller, known) = self.pairs.remove(pair)?;
        self.resize(teller, |share| share.remove(pair));
        Some(known)
    }

    fn resize(&mut self, teller: ProxyId, change: impl FnOnce(&mut BTreeSet<Pair>) -> bool) {
        let share = self.shares.entry(teller).or_default();
        self.sizes.remove(&(share.len(), teller));
        change(share);
        if share.is_empty() {
            self.shares.remove(&teller);
        } else {
            self.sizes.insert((share.len(), teller));
        }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{ServiceAccount, ServicePort};
    use uuid::Uuid;

    use super::*;

    /// The entries, as reporter and port number.
    fn kept(book: &Book<u128>) -> Vec<(u128, u16)> {
        book.iter().map(|((_, port), teller)| (*teller, port.port)).collect()
    }

    /// Reports a pair, and returns the port number of the entry that is not kept.
    fn tell(book: &mut Book<u128>, teller: u128, number: u16) -> Option<u16> {
        let account: ServiceAccount = "shop/buyer".parse().unwrap();
        let port = ServicePort::new("shop/till".parse().unwrap(), number);
        let proxy = ProxyId(Uuid::from_u128(teller));
        let had_room = book.has_room_for(proxy);
        let out = book.add(proxy, (account, port), teller, |_, _| ());
        let out = out.map(|((_, port), _)| port.port);
        assert!(had_room || out.is_none_or(|out| out == number));
        out
    }

    #[test]
    fn largest_share_is_evicted_until_shares_are_equal() {
        let mut book = Book::new(6);
        for number in 0..6 {
            assert_eq!(tell(&mut book, 1, number), None);
        }
        assert_eq!(tell(&mut book, 1, 6), Some(6), "it displaces nothing of its own");
        assert_eq!(tell(&mut book, 1, 0), None, "a known pair needs no space");
        assert_eq!(tell(&mut book, 2, 10), Some(5));
        assert_eq!(tell(&mut book, 2, 11), Some(4));
        assert_eq!(tell(&mut book, 2, 12), Some(3));
        assert_eq!(tell(&mut book, 2, 13), Some(13));
        assert_eq!(tell(&mut book, 1, 3), Some(3));
        assert_eq!(kept(&book), [(1, 0), (1, 1), (1, 2), (2, 10), (2, 11), (2, 12)]);
        assert_eq!(tell(&mut book, 3, 20), Some(12));
        assert_eq!(tell(&mut book, 2, 12), Some(12), "it would only swap the shares");
        book.retain(|(_, port), _| port.port >= 20);
        assert_eq!((kept(&book), book.shares.len()), (vec![(3, 20)], 1));
        assert_eq!(book.sizes.len(), 1);
    }
}
