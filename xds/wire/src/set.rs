//! Resource sets: the resources of one client, as persistent maps that share their structure.

use std::sync::Arc;

use imbl::ordmap::DiffItem;

use crate::by_type::ByType;
use crate::resource::{Resource, ResourceType};
use crate::resource_map::ResourceMap;

/// All resources of one client. Copies share their structure, and a difference between two sets
/// with a common origin costs as much as its size (invariant 5).
#[derive(Debug, Clone, Default)]
pub struct ResourceSet(ByType<ResourceMap>);

impl ResourceSet {
    /// The resources of a type.
    pub fn of(&self, resource_type: ResourceType) -> &ResourceMap {
        self.0.of(resource_type)
    }

    fn of_mut(&mut self, resource_type: ResourceType) -> &mut ResourceMap {
        self.0.of_mut(resource_type)
    }

    /// Inserts a resource, or replaces the one of that type and name.
    pub fn insert(&mut self, resource: Arc<Resource>) {
        self.of_mut(resource.resource_type()).insert(resource);
    }

    /// Replaces all resources of a type. A map that other sets have as well is stored once.
    pub fn replace(&mut self, resource_type: ResourceType, resources: ResourceMap) {
        *self.of_mut(resource_type) = resources;
    }

    /// Removes a resource.
    pub fn remove(&mut self, resource_type: ResourceType, name: &str) {
        self.of_mut(resource_type).remove(name);
    }

    /// Whether the set has a resource of that type and name.
    pub fn contains(&self, resource_type: ResourceType, name: &str) -> bool {
        self.of(resource_type).contains_key(name)
    }

    /// All resources, by type and then by name.
    pub fn iter(&self) -> impl Iterator<Item = &Arc<Resource>> {
        ResourceType::ALL.into_iter().flat_map(|resource_type| self.of(resource_type).values())
    }

    /// The same set, sharing the map of each type that equals the one in `older`.
    #[must_use]
    pub fn keeping_types_of(mut self, older: &Self) -> Self {
        for resource_type in ResourceType::ALL {
            self.keep_type_of(older, resource_type);
        }
        self
    }

    /// Shares the map of a type with `older`, if both have the same resources of it.
    pub fn keep_type_of(&mut self, older: &Self, resource_type: ResourceType) {
        if self.changed_since(older, resource_type).is_empty() {
            self.replace(resource_type, older.of(resource_type).clone());
        }
    }

    /// The same set, sharing with `older` everything that is equal, for a newly built set. A set
    /// derived from one that shares with `older` already shares.
    #[must_use]
    pub fn sharing_with(&self, older: &Self) -> Self {
        let mut shared = older.clone();
        for resource_type in ResourceType::ALL {
            let (old, new) = (older.of(resource_type), self.of(resource_type));
            let map = shared.of_mut(resource_type);
            for name in changed_names(old, new) {
                match new.get(&name) {
                    Some(resource) => map.insert(Arc::clone(resource)),
                    None => map.remove(&name),
                };
            }
        }
        shared
    }
}

/// The names whose content differs between two maps, or that only one of them has.
pub fn changed_names(old: &ResourceMap, new: &ResourceMap) -> Vec<Arc<str>> {
    iter_changed_names(old, new).cloned().collect()
}

/// The same, one after the other.
pub fn iter_changed_names<'a>(
    old: &'a ResourceMap,
    new: &'a ResourceMap,
) -> impl Iterator<Item = &'a Arc<str>> {
    // Nearly always both are the same map, and even an empty difference has a cost.
    let diff = (!old.ptr_eq(new)).then(|| old.diff(new));
    diff.into_iter().flatten().filter_map(|item| match item {
        DiffItem::Add(name, _) | DiffItem::Remove(name, _) => Some(name),
        DiffItem::Update { old: (_, old), new: (name, new) } => {
            (old.version() != new.version()).then_some(name)
        }
    })
}

impl ResourceSet {
    /// Whether `other` has the same resources in the same versions.
    pub fn is_same_as(&self, other: &Self) -> bool {
        let mut types = ResourceType::ALL.into_iter();
        types.all(|of| iter_changed_names(other.of(of), self.of(of)).next().is_none())
    }

    /// The names of a type whose content differs between `older` and this set, each once.
    pub fn changed_since(&self, older: &Self, resource_type: ResourceType) -> Vec<Arc<str>> {
        changed_names(older.of(resource_type), self.of(resource_type))
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;

    use super::*;

    fn set(clusters: &[(&str, &str)]) -> ResourceSet {
        let mut set = ResourceSet::default();
        for (name, content) in clusters {
            let cluster = Cluster {
                name: (*name).to_owned(),
                alt_stat_name: (*content).to_owned(),
                ..Cluster::default()
            };
            set.insert(Arc::new(Resource::new(&cluster)));
        }
        set
    }

    #[test]
    fn set_sharing_with_an_older_one_keeps_its_own_content() {
        let old = set(&[("kept", "1"), ("changed", "1"), ("gone", "1")]);
        let new = set(&[("kept", "1"), ("changed", "2"), ("added", "1")]);
        let shared = new.sharing_with(&old);
        let names = shared.changed_since(&new, ResourceType::Cluster);
        assert!(names.is_empty(), "{names:?}");
        let kept =
            |set: &ResourceSet| Arc::clone(set.of(ResourceType::Cluster).get("kept").unwrap());
        assert!(Arc::ptr_eq(&kept(&shared), &kept(&old)), "what has not changed is held once");
        let changed = shared.changed_since(&old, ResourceType::Cluster);
        assert_eq!(changed.iter().map(|n| &**n).collect::<Vec<_>>(), ["added", "changed", "gone"]);
    }
}
