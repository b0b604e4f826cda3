//! Static rendering: the xDS resources of proxies as one bootstrap that needs no control plane.
//! `envoy --mode validate` checks routes, endpoints and secrets only if they are inline.
//!
//! Proxies of a mesh have much in common. A listener is added only if it has content that no
//! earlier one has, apart from names, metadata and addresses.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_catalog::Secret;
use ironmesh_sidecar::envoy::CONTROL_PLANE_CLUSTER;
use ironmesh_xds_wire::{ResourceSet, ResourceType};
use serde_json::{Map, Value, json};

/// The type of the access log configuration that has a path.
const FILE_ACCESS_LOG: &str =
    "type.googleapis.com/envoy.extensions.access_loggers.file.v3.FileAccessLog";

/// The type of the extension for listeners without a socket.
const INTERNAL_LISTENERS: &str =
    "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener";

/// Placeholders for the certificates of all service accounts, and for the roots of the mesh.
#[derive(Debug, Clone)]
pub struct PlaceholderSecrets {
    /// The roots, in PEM.
    pub roots: String,
    /// A certificate with its issuers, in PEM.
    pub chain: String,
    /// Its key, in PEM.
    pub key: Secret,
}

/// A listener or a cluster of a proxy.
#[derive(Debug, Clone)]
pub struct Part {
    /// The proxy that has it, by its position in the order in which proxies were added.
    pub proxy: usize,
    /// Its type.
    pub resource_type: ResourceType,
    /// Its name.
    pub name: Arc<str>,
    /// The route configurations inlined in it.
    pub routes: BTreeSet<String>,
    /// The clusters that it refers to.
    clusters: BTreeSet<String>,
    content: Value,
}

/// Proxies as one bootstrap.
#[derive(Debug)]
pub struct Rendering {
    placeholders: PlaceholderSecrets,
    /// The listeners and the clusters.
    parts: Vec<Part>,
    /// The index of each cluster among the parts.
    clusters: BTreeMap<String, usize>,
    secrets: BTreeMap<String, Value>,
    /// The content of the listeners so far.
    seen: BTreeSet<String>,
    proxies: usize,
}

impl Rendering {
    /// Creates a rendering without proxies.
    pub fn new(placeholders: PlaceholderSecrets) -> Self {
        Self {
            placeholders,
            parts: Vec::new(),
            clusters: BTreeMap::new(),
            secrets: BTreeMap::new(),
            seen: BTreeSet::new(),
            proxies: 0,
        }
    }

    /// Adds what a proxy has and earlier ones lack.
    pub fn add(&mut self, resources: &ResourceSet) {
        let proxy = self.proxies;
        self.proxies += 1;
        for (name, resource) in resources.of(ResourceType::Secret) {
            if !self.secrets.contains_key(&**name) {
                let secret = self.placeholders.replace_in(resource.to_json());
                self.secrets.insert(name.to_string(), secret);
            }
        }
        // Those of the agent are not among the resources.
        for of in [ResourceType::Cluster, ResourceType::Listener] {
            for resource in resources.of(of).values() {
                self.add_certificates(&resource.to_json());
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
                // Listeners of several proxies have the same names.
                fields.insert("name".to_owned(), json!(format!("{name}#{proxy}")));
            }
            let (resource_type, name) = (ResourceType::Listener, Arc::clone(name));
            self.parts.push(Part { proxy, resource_type, name, routes, clusters, content });
        }
    }

    /// Adds placeholders for the certificates that `content` names and the secrets lack.
    fn add_certificates(&mut self, content: &Value) {
        match content {
            Value::Array(items) => items.iter().for_each(|item| self.add_certificates(item)),
            Value::Object(fields) => {
                let named = fields.get("tlsCertificateSdsSecretConfigs").and_then(Value::as_array);
                for name in named.into_iter().flatten().filter_map(|config| config["name"].as_str())
                {
                    if !self.secrets.contains_key(name) {
                        let secret = json!({ "name": name, "tlsCertificate": {} });
                        let secret = self.placeholders.replace_in(secret);
                        self.secrets.insert(name.to_owned(), secret);
                    }
                }
                fields.values().for_each(|field| self.add_certificates(field));
            }
            _ => {}
        }
    }

    /// All listeners and clusters.
    pub fn parts(&self) -> Vec<&Part> {
        self.parts.iter().collect()
    }

    /// The bootstrap of an Envoy with these parts, and with what they refer to.
    pub fn bootstrap(&self, parts: &[&Part]) -> Value {
        let names: BTreeSet<&String> = parts.iter().flat_map(|part| &part.clusters).collect();
        let clusters = names.into_iter().filter_map(|name| self.clusters.get(name));
        let clusters = clusters.filter_map(|at| Some(&self.parts.get(*at)?.content));
        // The sidecar's bootstrap has this cluster, and resources refer to it.
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
            // As in the sidecar's bootstrap.
            "layered_runtime": { "layers": [{
                "name": "ironmesh",
                "static_layer": { "re2": { "max_program_size": { "error_level": 1000 } } },
            }]},
            "bootstrap_extensions": [{
                "name": "envoy.bootstrap.internal_listener",
                "typed_config": { "@type": INTERNAL_LISTENERS },
            }],
        })
    }
}

impl PlaceholderSecrets {
    /// Replaces the content of a secret by placeholders.
    fn replace_in(&self, mut secret: Value) -> Value {
        // The roots themselves, or the list of callers of a TCP port, which contains them.
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

/// Makes a cluster static, with its endpoints.
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

/// Inlines routes and configurations of filters, and removes references to SDS.
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
            if fields.remove("configDiscovery").is_some()
                && let Some(name) = fields.get("name").and_then(Value::as_str)
                && let Some(config) = resources.of(ResourceType::ExtensionConfig).get(name)
            {
                let config = config.to_json().get("typedConfig").cloned().unwrap_or_default();
                fields.insert("typedConfig".to_owned(), config);
            }
            if let Some(name) = fields.remove("rds").and_then(|mut rds| route_name(&mut rds)) {
                let found = resources.of(ResourceType::Route).get(&name);
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

/// The content of a listener as texts that are equal for proxies with equal content: each virtual
/// host, and the rest.
fn pieces(listener: &Value) -> BTreeSet<String> {
    let mut pieces = BTreeSet::new();
    let mut rest = listener.clone();
    for field in ["name", "metadata", "address"] {
        rest.as_object_mut().and_then(|fields| fields.remove(field));
    }
    take_virtual_hosts(&mut rest, &mut pieces);
    pieces.insert(rest.to_string());
    pieces
}

/// Moves virtual hosts from `value` to `pieces`.
fn take_virtual_hosts(value: &mut Value, pieces: &mut BTreeSet<String>) {
    match value {
        Value::Array(items) => {
            for item in items {
                take_virtual_hosts(item, pieces);
            }
        }
        Value::Object(fields) => {
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

/// Collects the clusters that a listener names, including those of collectors.
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
