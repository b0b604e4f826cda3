//! The resources of one type, as a persistent map.

use std::ops::{Bound, Index};
use std::sync::Arc;

use imbl::OrdMap;
use imbl::ordmap::DiffItem;

use crate::resource::Resource;

/// The resources of one type, by name. Copies share their structure.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ResourceMap(OrdMap<Arc<str>, Arc<Resource>>);

/// One difference between two maps.
pub type ResourceDifference<'a> = DiffItem<'a, 'a, Arc<str>, Arc<Resource>>;

impl ResourceMap {
    /// Creates an empty map.
    pub fn new() -> Self {
        Self::default()
    }

    /// The number of resources.
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no resources.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// The resource with this name.
    pub fn get(&self, name: &str) -> Option<&Arc<Resource>> {
        self.0.get(name)
    }

    /// The stored copy of a name, with its resource.
    pub fn get_key_value(&self, name: &str) -> Option<(&Arc<str>, &Arc<Resource>)> {
        self.0.get_key_value(name)
    }

    /// Whether there is a resource with this name.
    pub fn contains_key(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Inserts a resource under its name. Returns the one that it replaces.
    pub fn insert(&mut self, resource: Arc<Resource>) -> Option<Arc<Resource>> {
        self.0.insert(Arc::clone(resource.name()), resource)
    }

    /// Removes a resource. Returns it.
    pub fn remove(&mut self, name: &str) -> Option<Arc<Resource>> {
        self.0.remove(name)
    }

    /// The names with their resources, in the order of names.
    pub fn iter(&self) -> impl DoubleEndedIterator<Item = (&Arc<str>, &Arc<Resource>)> {
        self.0.iter()
    }

    /// The same from a name on, which need not be in the map.
    pub fn iter_from<'a>(
        &'a self,
        name: &str,
    ) -> impl Iterator<Item = (&'a Arc<str>, &'a Arc<Resource>)> + use<'a> {
        self.0.range::<_, str>((Bound::Included(name), Bound::Unbounded))
    }

    /// The names, in order.
    pub fn keys(&self) -> impl DoubleEndedIterator<Item = &Arc<str>> {
        self.0.keys()
    }

    /// The resources, in the order of names.
    pub fn values(&self) -> impl DoubleEndedIterator<Item = &Arc<Resource>> {
        self.0.values()
    }

    /// Whether both are the same copy, without a look at the content.
    pub fn ptr_eq(&self, other: &Self) -> bool {
        self.0.ptr_eq(&other.0)
    }

    /// The differences from this map to `other`. It takes as long as there are differences, if both
    /// have a common origin.
    pub fn diff<'a>(&'a self, other: &'a Self) -> impl Iterator<Item = ResourceDifference<'a>> {
        self.0.diff(&other.0)
    }
}

impl Index<&str> for ResourceMap {
    type Output = Arc<Resource>;

    /// The resource with this name. It panics if there is none, as the index of any map does.
    #[expect(clippy::indexing_slicing, reason = "for tests: a panic is a failed test")]
    fn index(&self, name: &str) -> &Arc<Resource> {
        &self.0[name]
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
        self.0.iter()
    }
}
