//! Every reference in compiled resources, read from their JSON, is recorded and resolves.

use ironmesh_xds_compile::Compiled;
use ironmesh_xds_wire::{Resource, ResourceType};
use serde_json::Value;

use crate::case::Case;

#[test]
fn every_resource_reference_resolves() {
    let mut dangling = Vec::new();
    let mut followed = 0;
    for case in Case::all() {
        for one in case.compile() {
            let references = references(&one.compiled);
            followed += references.len();
            for (from, resource, kind, name) in references {
                assert!(resource.refers_to(kind, &name), "{from} → {kind} {name} is not recorded");
                if !one.compiled.resources.contains(kind, &name) {
                    let Case { name: case, .. } = &case;
                    dangling.push(format!("{case}, {}: {from} → {kind} {name}", one.label));
                }
            }
        }
    }
    assert!(dangling.is_empty(), "\n{}", dangling.join("\n"));
    assert!(followed > 200, "only {followed} references: are they still read where they are?");
}

/// The referring resource, and the type and name that it refers to.
type Reference<'a> = (String, &'a Resource, ResourceType, String);

fn references(compiled: &Compiled) -> Vec<Reference<'_>> {
    compiled.resources.iter().flat_map(|resource| references_of(resource)).collect()
}

fn references_of(resource: &Resource) -> Vec<Reference<'_>> {
    let content = resource.to_json();
    let mut found = Vec::new();
    let is_eds = resource.resource_type() == ResourceType::Cluster && content["type"] == "EDS";
    if is_eds {
        let service = content["edsClusterConfig"]["serviceName"].as_str();
        found.push((ResourceType::Endpoint, service.unwrap_or(resource.name()).to_owned()));
    }
    walk(&content, &mut found);
    let from = format!("{} {}", resource.resource_type(), resource.name());
    found.into_iter().map(|(kind, name)| (from.clone(), resource, kind, name)).collect()
}

fn walk(value: &Value, found: &mut Vec<(ResourceType, String)>) {
    match value {
        Value::Array(items) => items.iter().for_each(|item| walk(item, found)),
        Value::Object(fields) => {
            for (key, inner) in fields {
                let named = |name: &str| inner[name].as_str().map(str::to_owned);
                let each_named = || inner.as_array().into_iter().flatten().map(name_of);
                match key.as_str() {
                    "rds" => found
                        .extend(named("routeConfigName").map(|name| (ResourceType::Route, name))),
                    "validationContextSdsSecretConfig" => {
                        found.push((ResourceType::Secret, name_of(inner)));
                    }
                    "tlsCertificateSdsSecretConfigs" => {
                        // The agent serves the others.
                        let by_ads = |one: &&Value| one["sdsConfig"].get("ads").is_some();
                        let names = inner.as_array().into_iter().flatten().filter(by_ads);
                        found.extend(names.map(|one| (ResourceType::Secret, name_of(one))));
                    }
                    "filters" => {
                        let is_found = |one: &&Value| one.get("configDiscovery").is_some();
                        let names = inner.as_array().into_iter().flatten().filter(is_found);
                        found
                            .extend(names.map(|one| (ResourceType::ExtensionConfig, name_of(one))));
                    }
                    "cluster" => found.push((ResourceType::Cluster, text(inner))),
                    "clusters" => {
                        found.extend(each_named().map(|name| (ResourceType::Cluster, name)));
                    }
                    _ => {}
                }
                walk(inner, found);
            }
        }
        _ => {}
    }
}

fn name_of(value: &Value) -> String {
    text(&value["name"])
}

fn text(value: &Value) -> String {
    value.as_str().unwrap_or_else(|| panic!("no name: {value}")).to_owned()
}
