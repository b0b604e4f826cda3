//! References between resources, read from their JSON, against those that resources record.

use std::collections::BTreeSet;

use ironmesh_xds_wire::{Resource, ResourceType};
use proptest::prelude::*;
use serde_json::Value;

use super::mesh::shape;
use super::{compile_shape, each, text_scan};
use crate::Compiled;

/// The referring resource, and the type and name that it refers to.
pub(super) type Reference = (String, ResourceType, String);

pub(super) fn of(compiled: &Compiled) -> Vec<Reference> {
    compiled.resources.iter().flat_map(|resource| of_resource(resource)).collect()
}

fn of_resource(resource: &Resource) -> Vec<Reference> {
    let mut references = Vec::new();
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
    each(&content, "envoyGrpc", &mut |grpc| refer(ResourceType::Cluster, &grpc["clusterName"]));
    each(&content, "serverListenerName", &mut |name| refer(ResourceType::Listener, name));
    // A declared reference, of the chains of single callers.
    each(&content, "callers", &mut |name| refer(ResourceType::Secret, name));
    each(&content, "validationContextSdsSecretConfig", &mut |secret| {
        refer(ResourceType::Secret, &secret["name"]);
    });
    each(&content, "tlsCertificateSdsSecretConfigs", &mut |secrets| {
        for secret in secrets.as_array().into_iter().flatten() {
            refer(ResourceType::Secret, &secret["name"]);
        }
    });
    references
}

/// Whether a name of a resource may occur in a resource that does not refer to it.
fn is_no_reference(resource: &Resource, name: &str) -> bool {
    match resource.resource_type() {
        // The trust bundle of the test's mesh has the text `roots`, which is the name of a secret.
        ResourceType::Secret => true,
        // The inbound listener and the virtual host of inbound routes have one name.
        ResourceType::Route if name == "inbound" => true,
        _ => name == &**resource.name(),
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    #[test]
    fn recorded_references_equal_those_of_the_json(shape in shape()) {
        for (_, compiled) in compile_shape(&shape) {
            for resource in compiled.resources.iter() {
                let recorded = resource.references();
                let recorded: BTreeSet<_> =
                    recorded.map(|(of, name)| (of, name.to_owned())).collect();
                let read = of_resource(resource).into_iter().map(|(_, of, name)| (of, name));
                prop_assert_eq!(recorded, read.collect(), "{:?}", resource);
            }
        }
    }

    #[test]
    fn names_in_a_resource_are_recorded_references(shape in shape()) {
        for (_, compiled) in compile_shape(&shape) {
            let names: BTreeSet<&str> = compiled.resources.iter().map(|one| &**one.name()).collect();
            for resource in compiled.resources.iter() {
                let recorded: BTreeSet<_> = resource.references().map(|(_, name)| name).collect();
                for name in text_scan::occurring(resource, &names) {
                    prop_assert!(
                        recorded.contains(name) || is_no_reference(resource, name),
                        "{:?} has the text {}", resource, name,
                    );
                }
            }
        }
    }
}
