//! A static rendering: what a proxy is told by xDS as one bootstrap that needs no control plane.
//! `envoy --mode validate` looks at routes, endpoints and secrets only where they are inline.

use std::collections::BTreeMap;

use ironmesh_catalog::Proxy;
use ironmesh_xds_compile::Compiled;
use ironmesh_xds_wire::ResourceType;
use serde_json::{Value, json};

use crate::certificates::RealCertificates;

/// The resources of a proxy as a bootstrap, with real certificates in place of placeholders.
pub(crate) fn bootstrap(compiled: &Compiled, certificates: &RealCertificates) -> Value {
    let of = |kind| -> BTreeMap<String, Value> {
        let resources = compiled.resources.of(kind).values();
        resources.map(|one| (one.name().to_string(), one.to_json())).collect()
    };
    let (endpoints, routes) = (of(ResourceType::Endpoint), of(ResourceType::Route));
    let mut clusters = of(ResourceType::Cluster);
    for (name, cluster) in &mut clusters {
        if cluster["type"] == "EDS" {
            cluster["type"] = "STATIC".into();
            cluster["edsClusterConfig"].take();
            cluster["loadAssignment"] = endpoints[name].clone();
        }
    }
    let mut listeners = of(ResourceType::Listener);
    for value in clusters.values_mut().chain(listeners.values_mut()) {
        make_inline(value, &routes);
    }
    let mut secrets = of(ResourceType::Secret);
    for (name, secret) in &mut secrets {
        make_real(name, secret, certificates);
    }
    // What the bootstrap has, and what is told refers to.
    let control_plane = json!({ "name": Proxy::CONTROL_PLANE_CLUSTER, "type": "STATIC" });
    clusters.insert(Proxy::CONTROL_PLANE_CLUSTER.to_owned(), control_plane);
    let values = |resources: BTreeMap<String, Value>| resources.into_values().collect::<Vec<_>>();
    json!({
        "node": { "id": "static-rendering", "cluster": "golden" },
        "static_resources": {
            "clusters": values(clusters),
            "listeners": values(listeners),
            "secrets": values(secrets),
        },
        // As the sidecar's bootstrap has it.
        "layered_runtime": { "layers": [{
            "name": "ironmesh",
            "static_layer": { "re2": { "max_program_size": { "error_level": 1000 } } },
        }]},
    })
}

/// Puts routes where their names are, and takes away where secrets would come from.
fn make_inline(value: &mut Value, routes: &BTreeMap<String, Value>) {
    match value {
        Value::Array(items) => items.iter_mut().for_each(|item| make_inline(item, routes)),
        Value::Object(fields) => {
            fields.remove("sdsConfig");
            if let Some(rds) = fields.remove("rds") {
                let name = rds["routeConfigName"].as_str().unwrap();
                fields.insert("routeConfig".to_owned(), routes[name].clone());
            }
            fields.values_mut().for_each(|inner| make_inline(inner, routes));
        }
        _ => {}
    }
}

fn make_real(name: &str, secret: &mut Value, certificates: &RealCertificates) {
    // The roots themselves, or who may connect to a TCP port, which has them as well.
    if let Some(roots) = secret.pointer_mut("/validationContext/trustedCa") {
        *roots = json!({ "inlineString": certificates.roots() });
        return;
    }
    let account = name.strip_prefix("service-cert:").unwrap();
    let certificate = certificates.of_account(&account.parse().unwrap());
    let tls = &mut secret["tlsCertificate"];
    assert!(tls.is_object(), "neither a certificate nor roots: {name}");
    tls["certificateChain"] = json!({ "inlineString": certificate.chain });
    tls["privateKey"] = json!({ "inlineString": certificate.key.expose() });
}
