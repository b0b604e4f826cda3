//! The resources of one type, as a persistent map.

use std::iter::Peekable;
use std::ops::{Bound, Index};
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use crate::digest::Digest;
use crate::names::{InitialVersions, NameList};
use crate::resource::Resource;

/// The resources of one type, by name. Copies share their structure.
#[derive(Debug, Clone, Default)]
pub struct ResourceMap {
    resources: OrdMap<Arc<str>, Arc<Resource>>,
    /// The digest of the names.
    names: Digest,
    /// The digest of the names with their versions.
    versions: Digest,
}

impl PartialEq for ResourceMap {
    fn eq(&self, other: &Self) -> bool {
        // The digests follow from the resources.
        self.resources == other.resources
    }
}

impl Eq for ResourceMap {}

/// One difference between two maps.
pub type MapDifference<'a> = DiffItem<'a, 'a, Arc<str>, Arc<Resource>>;

impl ResourceMap {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.resources.len()
    }

    /// Whether there are no resources.
    pub fn is_empty(&self) -> bool {
        self.resources.is_empty()
    }

    /// The resource with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.resources.get(name)
    }

    /// The stored copy of a name, with its resource.
    pub fn get_key_value(&self, name: &str) -> Option<(&Arc<str>, &Arc<Resource>)> {
        self.resources.get_key_value(name)
    }

    /// Whether there is a resource with this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.resources.contains_key(name)
    }

    /// Inserts a resource under its name. Returns the one that it replaces.
    pub fn insert(&mut self, resource: Arc<Resource>) -> Option<Arc<Resource>> {
        self.names.add(resource.name_digest());
        self.versions.add(resource.version_digest());
        let replaced = self.resources.insert(Arc::clone(resource.name()), resource);
        self.subtract(replaced.as_deref());
        replaced
    }

    /// Removes a resource. Returns it.
    pub fn remove(&mut self, name: &str) -> Option<Arc<Resource>> {
        let removed = self.resources.remove(name);
        self.subtract(removed.as_deref());
        removed
    }

    /// Removes from the digests what is no longer in the map.
    fn subtract(&mut self, gone: Option<&Resource>) {
        if let Some(gone) = gone {
            self.names.remove(gone.name_digest());
            self.versions.remove(gone.version_digest());
        }
    }

    /// Whether `names` are exactly the names of all resources, each once, in any order.
    pub fn has_exactly_names(&self, names: &NameList) -> bool {
        self.len() == names.len() && self.names == names.iter().map(Digest::of_name).collect()
    }

    /// Whether `versions` are exactly the names and versions of all resources, each once, in any
    /// order.
    pub fn has_exactly_versions(&self, versions: &InitialVersions) -> bool {
        let digests =
            versions.entries().map(|(entry, name_len)| Digest::of_version(entry, name_len));
        self.len() == versions.len() && self.versions == digests.collect()
    }

    /// The names with their resources, in the order of names.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Arc<str>, &Arc<Resource>)> {
        self.resources.iter()
    }

    /// The same from a name on, which need not be in the map.
    pub fn iter_from<'a>(
        &'a self,
        name: &str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Resource>)> + use<'a> {
        self.resources.range::<_, str>((Bound::Included(name), Bound::Unbounded))
    }

    /// Look-ups of many names in their order.
    pub fn lookup_in_order(&self) -> OrderedLookup<'_> {
        OrderedLookup { map: self, searches: 0, next: None }
    }

    /// The names, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &Arc<str>> {
        self.resources.keys()
    }

    /// The resources, in the order of names.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Arc<Resource>> {
        self.resources.values()
    }

    /// Whether both are the same copy, without a look at the content.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.resources.ptr_eq(&other.resources)
    }

    /// The differences from this map to `other`. It takes as long as there are differences, if both
    /// have a common origin.
    pub fn diff<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = MapDifference<'a>> {
        self.resources.diff(&other.resources)
    }
}

/// Look-ups of names in their order: the name after the last one is found without a search.
#[derive(Debug)]
pub struct OrderedLookup<'a> {
    map: &'a ResourceMap,
    searches: usize,
    /// The resources after the last one.
    next: Option<Peekable<Rest<'a>>>,
}

type Rest<'a> =
    imbl::ordmap::RangedIter<'a, Arc<str>, Arc<Resource>, imbl::shared_ptr::DefaultSharedPtr>;

impl<'a> OrderedLookup<'a> {
    /// The resource with this name.
    pub fn get(&mut self, name: &str) -> Option<&'a Arc<Resource>> {
        let is_next = |(next, _): &(&Arc<str>, _)| ***next == *name;
        if let Some((_, resource)) = self.next.as_mut().and_then(|next| next.next_if(is_next)) {
            return Some(resource);
        }
        let found = self.map.get(name)?;
        self.searches += 1;
        // For a single name this would be a second search in vain.
        if self.searches > 1 {
            let after = (Bound::Excluded(name), Bound::Unbounded);
            self.next = Some(self.map.resources.range::<_, str>(after).peekable());
        }
        Some(found)
    }
}

impl Index<&str> for ResourceMap {
    type Output = Arc<Resource>;

    /// The resource with this name. It panics if there is none, as the index of any map does.
    #[expect(clippy::indexing_slicing, reason = "for tests: a panic is a failed test")]
    fn index(&self, name: &str) -> &Arc<Resource> {
        &self.resources[name]
    }
}

impl FromIterator<Arc<Resource>> for ResourceMap {
    fn from_iter<I: IntoIterator<Item = Arc<Resource>>>(resources: I) -> Self {
        let mut map = Self::default();
        for resource in resources {
            map.insert(resource);
        }
        map
    }
}

impl<'a> IntoIterator for &'a ResourceMap {
    type Item = (&'a Arc<str>, &'a Arc<Resource>);
    type IntoIter =
        imbl::ordmap::Iter<'a, Arc<str>, Arc<Resource>, imbl::shared_ptr::DefaultSharedPtr>;

    fn into_iter(self) -> Self::IntoIter {
        self.resources.iter()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use proptest::prelude::*;

    use super::*;

    fn resource(name: u8, content: u8) -> Arc<Resource> {
        let (name, alt_stat_name) = (name.to_string(), content.to_string());
        Arc::new(Resource::new(&Cluster { name, alt_stat_name, ..Cluster::default() }))
    }

    proptest! {
        /// The digests follow every insert and removal, and tell exactly the same names and versions
        /// from all others.
        #[test]
        fn comparison_by_digest_equals_that_of_each_name(
            steps in prop::collection::vec((0..6_u8, prop::option::weighted(0.7, 0..3_u8)), 0..20),
            reported in prop::collection::vec((0..6_u8, 0..3_u8), 0..6),
            is_map in any::<bool>(),
        ) {
            let mut map = ResourceMap::new();
            for (name, content) in steps {
                match content {
                    Some(content) => map.insert(resource(name, content)),
                    None => map.remove(&name.to_string()),
                };
            }
            let version = |one: &Arc<Resource>| (one.name().to_string(), one.version().to_string());
            let mut all: Vec<_> = map.values().map(version).collect();
            let names: NameList = all.iter().rev().map(|(name, _)| name).collect();
            prop_assert!(map.has_exactly_names(&names));
            prop_assert!(map.has_exactly_versions(&all.iter().rev().map(|(n, v)| (n, v)).collect()));

            let reported = reported.iter().map(|(name, content)| version(&resource(*name, *content)));
            let mut reported: Vec<_> = reported.collect();
            if is_map {
                reported = reported.into_iter().collect::<BTreeMap<_, _>>().into_iter().collect();
            }
            let names: NameList = reported.iter().map(|(name, _)| name).collect();
            let versions: InitialVersions = reported.iter().map(|(n, v)| (n, v)).collect();
            reported.sort();
            let has_names = all.iter().map(|(name, _)| name).eq(reported.iter().map(|(name, _)| name));
            prop_assert_eq!(map.has_exactly_names(&names), has_names);
            all.sort();
            prop_assert_eq!(map.has_exactly_versions(&versions), all == reported);
        }
    }
}
