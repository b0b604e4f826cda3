//! References between resources, read from their JSON.

use ironmesh_xds_wire::ResourceType;
use serde_json::Value;

use super::each;
use crate::Compiled;

/// The referring resource, and the type and name that it refers to.
pub(super) type Reference = (String, ResourceType, String);

pub(super) fn of(compiled: &Compiled) -> Vec<Reference> {
    let mut references = Vec::new();
    for resource in compiled.resources.iter() {
        let content = resource.to_json();
        let from = format!("{} {}", resource.resource_type(), resource.name());
        let mut refer = |kind, name: &Value| {
            let name = name.as_str().expect("a reference is a name").to_owned();
            references.push((from.clone(), kind, name));
        };
        if content["type"] == "EDS" {
            refer(ResourceType::Endpoint, &content["name"]);
        }
        each(&content, "filters", &mut |filters| {
            let filters = filters.as_array().into_iter().flatten();
            for filter in filters.filter(|filter| filter.get("configDiscovery").is_some()) {
                refer(ResourceType::ExtensionConfig, &filter["name"]);
            }
        });
        each(&content, "rds", &mut |rds| refer(ResourceType::Route, &rds["routeConfigName"]));
        each(&content, "cluster", &mut |name| refer(ResourceType::Cluster, name));
        each(&content, "weightedClusters", &mut |weighted| {
            for cluster in weighted["clusters"].as_array().into_iter().flatten() {
                refer(ResourceType::Cluster, &cluster["name"]);
            }
        });
        each(&content, "validationContextSdsSecretConfig", &mut |secret| {
            refer(ResourceType::Secret, &secret["name"]);
        });
        each(&content, "tlsCertificateSdsSecretConfigs", &mut |secrets| {
            for secret in secrets.as_array().into_iter().flatten() {
                refer(ResourceType::Secret, &secret["name"]);
            }
        });
    }
    references
}
