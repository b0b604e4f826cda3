//! The difference between two states of a proxy: which resources a proxy would be sent, and which of its connections
//! would end.

use std::collections::BTreeSet;
use std::sync::Arc;

use ironmesh_xds_wire::pb::envoy::config::listener::v3::{FilterChain, Listener};
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType};

/// A resource that is added, removed or changed.
#[derive(Debug, Clone)]
pub struct ResourceDifference {
    /// Its type.
    pub resource_type: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// The resource that the proxy has.
    pub before: Option<Arc<Resource>>,
    /// The resource that it would have.
    pub after: Option<Arc<Resource>>,
}

/// The differences between two sets, by type and then by name.
pub fn difference(before: &ResourceSet, after: &ResourceSet) -> Vec<ResourceDifference> {
    let of_type = |resource_type: ResourceType| {
        let names: BTreeSet<_> = after.changed_since(before, resource_type).into_iter().collect();
        names.into_iter().map(move |name| ResourceDifference {
            before: before.of(resource_type).get(&name).cloned(),
            after: after.of(resource_type).get(&name).cloned(),
            resource_type,
            name,
        })
    };
    ResourceType::ALL.into_iter().flat_map(of_type).collect()
}

impl ResourceDifference {
    /// The filter chains whose connections Envoy ends within its drain time.
    ///
    /// If only filter chains of a listener differ, these are the removed and changed ones;
    /// otherwise all of them. A chain whose name has no service port is listed by its listener's.
    pub fn drains(&self) -> Vec<String> {
        let Some(mut before) = listener(self.before.as_ref()) else { return Vec::new() };
        let after = listener(self.after.as_ref());
        let chains = std::mem::take(&mut before.filter_chains);
        // What selects a chain affects new connections only.
        before.filter_chain_matcher = None;
        let stays = |chain: &FilterChain| {
            let Some(after) = &after else { return false };
            // Everything except the chains.
            let rest =
                Listener { filter_chains: Vec::new(), filter_chain_matcher: None, ..after.clone() };
            rest == before && after.filter_chains.contains(chain)
        };
        let drained = chains.iter().filter(|chain| !stays(chain));
        let name = |chain: &FilterChain| {
            let has_service_port = chain.name.contains('|');
            if has_service_port { chain.name.clone() } else { before.name.clone() }
        };
        let names: BTreeSet<_> = drained.map(name).collect();
        names.into_iter().collect()
    }
}

fn listener(resource: Option<&Arc<Resource>>) -> Option<Listener> {
    resource?.message()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn chain(name: &str, metadata: &str) -> FilterChain {
        // Any field will do that differs.
        let filter = ironmesh_xds_wire::pb::envoy::config::listener::v3::Filter {
            name: metadata.to_owned(),
            ..Default::default()
        };
        FilterChain { name: name.to_owned(), filters: vec![filter], ..FilterChain::default() }
    }

    fn set(chains: &[(&str, &str)], stat_prefix: &str) -> ResourceSet {
        let mut set = ResourceSet::default();
        set.insert(Arc::new(Resource::new(&Listener {
            name: "inbound".to_owned(),
            stat_prefix: stat_prefix.to_owned(),
            filter_chains: chains.iter().map(|(name, content)| chain(name, content)).collect(),
            ..Listener::default()
        })));
        set
    }

    fn drains(before: &ResourceSet, after: &ResourceSet) -> Vec<String> {
        difference(before, after).iter().flat_map(ResourceDifference::drains).collect()
    }

    #[test]
    fn only_changed_chains_drain_unless_the_listener_changes() {
        let before = set(&[("a|1", "1"), ("b|1", "1"), ("", "1")], "x");
        assert!(difference(&before, &before).is_empty());
        let (a, b, rest) = (("a|1", "1"), ("b|1", "1"), ("", "1"));
        assert_eq!(drains(&before, &set(&[a, ("b|1", "2"), rest], "x")), ["b|1"]);
        assert_eq!(drains(&before, &set(&[a, b], "x")), ["inbound"]);
        let all = ["a|1", "b|1", "inbound"];
        assert_eq!(drains(&before, &set(&[a, b, rest], "y")), all);
        assert_eq!(drains(&before, &ResourceSet::default()), all);
        assert!(drains(&before, &set(&[a, b, rest, ("c|1", "1")], "x")).is_empty());
        assert!(drains(&ResourceSet::default(), &before).is_empty());
    }
}
