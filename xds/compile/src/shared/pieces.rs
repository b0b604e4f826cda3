//! Compiled pieces by key, each with what its compilation has read.

use std::collections::BTreeMap;

use crate::reads::{ChangedReads, ReadSet};

/// Pieces of one kind.
#[derive(Debug)]
pub(crate) struct Pieces<K, V>(BTreeMap<K, (V, ReadSet)>);

impl<K, V> Default for Pieces<K, V> {
    fn default() -> Self {
        Self(BTreeMap::new())
    }
}

impl<K: Ord + Clone, V> Pieces<K, V> {
    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.0.get(key).map(|(value, _)| value)
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        self.0.get_mut(key).map(|(value, _)| value)
    }

    pub(super) fn insert(&mut self, key: K, value: V, reads: ReadSet) {
        self.0.insert(key, (value, reads));
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        self.0.remove(key).map(|(value, _)| value)
    }

    pub(super) fn retain(&mut self, is_kept: impl Fn(&K) -> bool) {
        self.0.retain(|key, _| is_kept(key));
    }

    /// Puts an earlier value back if it was compiled again and is the same: the sets of all proxies continue to share it.
    /// Returns whether it is.
    pub(super) fn keep(&mut self, key: &K, earlier: V, is_same: impl Fn(&V, &V) -> bool) -> bool {
        match self.0.get_mut(key) {
            Some((value, _)) if is_same(&earlier, value) => {
                *value = earlier;
                true
            }
            _ => false,
        }
    }

    /// The pieces that have a changed read.
    pub(super) fn stale(&self, changed: &ChangedReads) -> Vec<K> {
        if changed.is_empty() {
            return Vec::new();
        }
        let stale = self.0.iter().filter(|(_, (_, reads))| changed.touch(reads));
        stale.map(|(key, _)| key.clone()).collect()
    }

    pub(super) fn reads(&self) -> impl Iterator<Item = &ReadSet> {
        self.0.values().map(|(_, reads)| reads)
    }
}
