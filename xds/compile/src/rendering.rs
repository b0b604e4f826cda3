//! A static rendering: what proxies are told by xDS as one bootstrap that needs no control plane.
//! `envoy --mode validate` looks at routes, endpoints and secrets only where they are inline.
//!
//! The proxies of a mesh have much in common. A listener is put in if there is something in it that none has
//! that is there already, but for names, addresses and what callers are told.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::Secret;
use ironmesh_sidecar::envoy::CONTROL_PLANE_CLUSTER;
use ironmesh_xds_wire::{ResourceSet, ResourceType};
use serde_json::{Map, Value, json};

/// What says where an access log goes.
const FILE_ACCESS_LOG: &str =
    "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";

/// What stands in for the certificates of all service accounts, and for the roots of the mesh.
#[derive(Debug, Clone)]
pub struct StandIn {
    /// The roots, in PEM.
    pub roots: String,
    /// A certificate with those that issued it, in PEM.
    pub chain: String,
    /// Its key, in PEM.
    pub key: Secret,
}

/// A listener or a cluster of a proxy.
#[derive(Debug, Clone)]
pub struct Part {
    /// Which of the proxies has it, in the order in which they were added.
    pub proxy: usize,
    /// What it is.
    pub resource_type: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// The route configurations that are inline in it.
    pub routes: BTreeSet<String>,
    /// The clusters that it leads to.
    clusters: BTreeSet<String>,
    content: Value,
}

/// Proxies as one bootstrap.
#[derive(Debug)]
pub struct Rendering {
    stand_in: StandIn,
    /// The listeners and the clusters.
    parts: Vec<Part>,
    /// Where each cluster is among the parts.
    clusters: BTreeMap<String, usize>,
    secrets: BTreeMap<String, Value>,
    /// What is in the listeners.
    seen: BTreeSet<String>,
    proxies: usize,
}

impl Rendering {
    /// Of no proxy yet.
    pub fn new(stand_in: StandIn) -> Self {
        Self {
            stand_in,
            parts: Vec::new(),
            clusters: BTreeMap::new(),
            secrets: BTreeMap::new(),
            seen: BTreeSet::new(),
            proxies: 0,
        }
    }

    /// Puts in what a proxy has and those before it have not.
    pub fn add(&mut self, resources: &ResourceSet) {
        let proxy = self.proxies;
        self.proxies += 1;
        for (name, resource) in resources.of(ResourceType::Secret) {
            if !self.secrets.contains_key(&**name) {
                let secret = self.stand_in.put_into(resource.to_json());
                self.secrets.insert(name.to_string(), secret);
            }
        }
        for (name, resource) in resources.of(ResourceType::Cluster) {
            if self.clusters.contains_key(&**name) {
                continue;
            }
            let endpoints = resources.of(ResourceType::Endpoint).get(name);
            let endpoints = endpoints.map(|endpoints| endpoints.to_json());
            let mut content = with_endpoints(resource.to_json(), endpoints);
            make_inline(&mut content, resources, &mut BTreeSet::new());
            self.clusters.insert(name.to_string(), self.parts.len());
            self.parts.push(Part {
                proxy,
                resource_type: ResourceType::Cluster,
                name: Arc::clone(name),
                routes: BTreeSet::new(),
                clusters: BTreeSet::from([name.to_string()]),
                content,
            });
        }
        for (name, resource) in resources.of(ResourceType::Listener) {
            let (mut content, mut routes) = (resource.to_json(), BTreeSet::new());
            make_inline(&mut content, resources, &mut routes);
            let mut clusters = BTreeSet::new();
            find_clusters(&content, &mut clusters);
            let seen = self.seen.len();
            self.seen.extend(pieces(&content));
            if self.seen.len() == seen {
                continue;
            }
            if let Some(fields) = content.as_object_mut() {
                // Listeners of several proxies are called the same.
                fields.insert("name".to_owned(), json!(format!("{name}#{proxy}")));
            }
            let (resource_type, name) = (ResourceType::Listener, Arc::clone(name));
            self.parts.push(Part { proxy, resource_type, name, routes, clusters, content });
        }
    }

    /// All listeners and clusters that are in it.
    pub fn parts(&self) -> Vec<&Part> {
        self.parts.iter().collect()
    }

    /// These parts, and what they lead to, as the bootstrap of an Envoy.
    pub fn bootstrap(&self, parts: &[&Part]) -> Value {
        let names: BTreeSet<&String> = parts.iter().flat_map(|part| &part.clusters).collect();
        let clusters = names.into_iter().filter_map(|name| self.clusters.get(name));
        let clusters = clusters.filter_map(|at| Some(&self.parts.get(*at)?.content));
        // What the bootstrap of a sidecar has, and what is told refers to.
        let control_plane = json!({ "name": CONTROL_PLANE_CLUSTER, "type": "STATIC" });
        let clusters = clusters.chain([&control_plane]);
        let listeners = parts.iter().filter(|part| part.resource_type == ResourceType::Listener);
        json!({
            "node": { "id": "static-rendering", "cluster": "static-rendering" },
            "static_resources": {
                "clusters": clusters.collect::<Vec<_>>(),
                "listeners": listeners.map(|part| &part.content).collect::<Vec<_>>(),
                "secrets": self.secrets.values().collect::<Vec<_>>(),
            },
            // As the sidecar's bootstrap has it.
            "layered_runtime": { "layers": [{
                "name": "ironmesh",
                "static_layer": { "re2": { "max_program_size": { "error_level": 1000 } } },
            }]},
        })
    }
}

impl StandIn {
    /// The secret with the stand-in for what it holds.
    fn put_into(&self, mut secret: Value) -> Value {
        // The roots themselves, or who may connect to a TCP port, which has them as well.
        if let Some(roots) = secret.pointer_mut("/validationContext/trustedCa") {
            *roots = json!({ "inlineString": self.roots });
        }
        if let Some(certificate) = secret.pointer_mut("/tlsCertificate") {
            *certificate = json!({
                "certificateChain": { "inlineString": self.chain },
                "privateKey": { "inlineString": self.key.expose() },
            });
        }
        secret
    }
}

/// A cluster that needs nobody to tell it its endpoints.
fn with_endpoints(mut cluster: Value, endpoints: Option<Value>) -> Value {
    if let Some(fields) = cluster.as_object_mut()
        && fields.get("type") == Some(&json!("EDS"))
    {
        fields.insert("type".to_owned(), json!("STATIC"));
        fields.remove("edsClusterConfig");
        if let Some(endpoints) = endpoints {
            fields.insert("loadAssignment".to_owned(), endpoints);
        }
    }
    cluster
}

/// Puts routes where their names are, and takes away where secrets would come from.
fn make_inline(value: &mut Value, resources: &ResourceSet, routes: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => {
            for item in items {
                make_inline(item, resources, routes);
            }
        }
        Value::Object(fields) => {
            fields.remove("sdsConfig");
            // The file of an access log is on the proxy's machine.
            if fields.get("@type").and_then(Value::as_str) == Some(FILE_ACCESS_LOG) {
                fields.insert("path".to_owned(), json!("/dev/null"));
            }
            if let Some(name) = fields.remove("rds").and_then(|mut rds| route_name(&mut rds)) {
                let found = resources.of(ResourceType::Route).get(&*name);
                let content = found.map_or_else(|| json!({}), |routes| routes.to_json());
                fields.insert("routeConfig".to_owned(), content);
                routes.insert(name);
            }
            for inner in fields.values_mut() {
                make_inline(inner, resources, routes);
            }
        }
        _ => {}
    }
}

fn route_name(rds: &mut Value) -> Option<String> {
    let fields: &mut Map<String, Value> = rds.as_object_mut()?;
    Some(fields.get("routeConfigName")?.as_str()?.to_owned())
}

/// What a listener consists of, in texts that are the same for all proxies that have the same: its virtual
/// hosts, each by itself, and the rest.
fn pieces(listener: &Value) -> BTreeSet<String> {
    let mut pieces = BTreeSet::new();
    let mut rest = listener.clone();
    for field in ["name", "address"] {
        rest.as_object_mut().and_then(|fields| fields.remove(field));
    }
    take_virtual_hosts(&mut rest, &mut pieces);
    pieces.insert(rest.to_string());
    pieces
}

/// Takes virtual hosts out of `value`, into `pieces`.
fn take_virtual_hosts(value: &mut Value, pieces: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => {
            for item in items {
                take_virtual_hosts(item, pieces);
            }
        }
        Value::Object(fields) => {
            // It names the caller.
            fields.get_mut("directResponse").and_then(|one| one.as_object_mut()?.remove("body"));
            for inner in fields.values_mut() {
                take_virtual_hosts(inner, pieces);
            }
            if let Some(Value::Array(hosts)) = fields.remove("virtualHosts") {
                pieces.extend(hosts.iter().map(Value::to_string));
            }
        }
        _ => {}
    }
}

/// The clusters that a listener names: one, or several by weight; and who is told of calls.
fn find_clusters(value: &Value, clusters: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => {
            for item in items {
                find_clusters(item, clusters);
            }
        }
        Value::Object(fields) => {
            for key in ["cluster", "clusterName"] {
                if let Some(Value::String(name)) = fields.get(key) {
                    clusters.insert(name.clone());
                }
            }
            let weighted =
                fields.get("weightedClusters").and_then(|weighted| weighted.get("clusters"));
            let weighted = weighted.and_then(Value::as_array).into_iter().flatten();
            let names = weighted.filter_map(|one| one.get("name")?.as_str());
            clusters.extend(names.map(str::to_owned));
            for inner in fields.values() {
                find_clusters(inner, clusters);
            }
        }
        _ => {}
    }
}
