//! The resources of an earlier set that a client keeps while it waits.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::ServicePort;
use ironmesh_xds_compile::handover::{INBOUND_LISTENER, keep_filter_chains};
use ironmesh_xds_compile::{ResourceRole, names};
use ironmesh_xds_wire::{Resource, ResourceSet, ResourceType, Version};

/// An inbound listener that serves the compiled ports and dropped ones.
#[derive(Debug)]
pub(super) struct KeptListener {
    /// The compiled version, without dropped ports; `None` where no listener was compiled.
    wanted: Option<Version>,
    ports: Vec<ServicePort>,
    listener: Arc<Resource>,
}

impl KeptListener {
    /// Whether it replaces this resource.
    pub(super) fn is_for(&self, resource_type: ResourceType, name: &str, version: Version) -> bool {
        resource_type == ResourceType::Listener
            && name == INBOUND_LISTENER
            && self.wanted == Some(version)
    }

    pub(super) fn version(&self) -> Version {
        self.listener.version()
    }
}

/// Keeps what a proxy needs to serve these ports, and nothing else of `before`. `kept` is the result of the last call.
pub(super) fn keep_serving_ports(
    ports: Vec<ServicePort>,
    set: &mut ResourceSet,
    before: &ResourceSet,
    kept: Option<KeptListener>,
) -> Option<KeptListener> {
    let old = before.of(ResourceType::Listener).get(INBOUND_LISTENER)?;
    let new = set.of(ResourceType::Listener).get(INBOUND_LISTENER);
    let wanted = new.map(|new| new.version());
    let is_same = |kept: &KeptListener| {
        kept.wanted == wanted && kept.ports == ports && kept.version() == old.version()
    };
    let kept = if let Some(kept) = kept.filter(is_same) {
        kept
    } else {
        let listener = keep_filter_chains(new.map(|new| &**new), old, &ports)?;
        KeptListener { wanted, ports, listener: Arc::new(listener) }
    };
    let mut keep = |resource_type, name: &str| {
        if let Some(resource) = before.of(resource_type).get(name) {
            set.insert(Arc::clone(resource));
        }
    };
    for port in &kept.ports {
        keep(ResourceType::Cluster, &names::local_cluster(port));
        keep(ResourceType::Route, &names::inbound_route(port));
        keep(ResourceType::Cluster, &names::counted_cluster(port));
        keep(ResourceType::Listener, &names::counted_listener(port));
        keep(ResourceType::Cluster, &names::callers_cluster(port));
        keep(ResourceType::Listener, &names::callers_listener(port));
        keep(ResourceType::ExtensionConfig, &names::withdrawals_filter(port));
    }
    set.insert(Arc::clone(&kept.listener));
    let counted = kept.ports.iter().filter_map(|port| {
        set.of(ResourceType::Listener).get(names::counted_listener(port).as_str()).cloned()
    });
    let listeners: Vec<_> = counted.chain([Arc::clone(&kept.listener)]).collect();
    for listener in listeners {
        keep_parts(&listener, set, before);
    }
    Some(kept)
}

/// Keeps the secrets to which a kept listener refers, and the clusters, such as those of rate limit and log services.
/// Envoy NACKs a listener that logs to a missing cluster, and limits nothing by one.
fn keep_parts(listener: &Resource, set: &mut ResourceSet, before: &ResourceSet) {
    for resource_type in [ResourceType::Secret, ResourceType::Cluster] {
        for name in listener.references_to(resource_type) {
            // A newer resource of the same name stays.
            if let Some(old) = before.of(resource_type).get(name)
                && !set.contains(resource_type, name)
            {
                set.insert(Arc::clone(old));
            }
        }
    }
}

/// Keeps a server's local clusters of these ports. Returns the versions of each: the compiled one and the kept one.
pub(super) fn keep_local_clusters(
    ports: &[ServicePort],
    set: &mut ResourceSet,
    before: &ResourceSet,
) -> BTreeMap<Arc<str>, (Version, Version)> {
    let mut kept = BTreeMap::new();
    for port in ports {
        let name = names::local_cluster(port);
        let find = |set: &ResourceSet| set.of(ResourceType::Cluster).get(name.as_str()).cloned();
        if let Some((wanted, old)) = find(set).zip(find(before)) {
            kept.insert(Arc::clone(old.name()), (wanted.version(), old.version()));
            set.insert(old);
        }
    }
    kept
}

/// Keeps a caller's resources where the compiled ones refer to ports that no endpoint serves yet.
pub(super) fn keep_caller_resources(
    unserved: &[String],
    set: &mut ResourceSet,
    before: &ResourceSet,
) {
    let wanted = set.clone();
    for name in unserved {
        for resource_type in [ResourceType::Cluster, ResourceType::Endpoint] {
            match before.of(resource_type).get(name.as_str()) {
                // It was served until now, and will be served again.
                Some(old) => set.insert(Arc::clone(old)),
                None => set.remove(resource_type, name),
            }
        }
    }
    let is_new = |name: &&String| !before.contains(ResourceType::Cluster, name);
    let unserved: Vec<_> = unserved.iter().filter(is_new).collect();
    for resource_type in [ResourceType::Route, ResourceType::Listener] {
        for name in wanted.changed_since(before, resource_type) {
            let new = wanted.of(resource_type).get(&name);
            let leads_there = new.is_some_and(|new| {
                unserved.iter().any(|port| new.refers_to(ResourceType::Cluster, port))
            });
            if !leads_there {
                continue;
            }
            match before.of(resource_type).get(&name) {
                Some(old) => set.insert(Arc::clone(old)),
                None => set.remove(resource_type, &name),
            }
        }
    }
    // The kept resources refer to clusters, which must stay too.
    for resource_type in [ResourceType::Cluster, ResourceType::Endpoint] {
        for name in wanted.changed_since(before, resource_type) {
            let old = before
                .of(resource_type)
                .get(&name)
                .filter(|old| !ResourceRole::is_own_cluster(old));
            if let Some(old) = old
                && !wanted.contains(resource_type, &name)
            {
                set.insert(Arc::clone(old));
            }
        }
    }
}
