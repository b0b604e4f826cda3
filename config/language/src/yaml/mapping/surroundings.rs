//! The surroundings: resources to which policy refers, which are services with their pods, and extension
//! services of Open Service Mesh.

use std::collections::BTreeMap;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::Resource;
use super::workload::strings;

/// The API group of the configuration of Open Service Mesh.
pub(super) const OSM_CONFIG: &str = "config.openservicemesh.io";

/// The kind of an [`ExtensionService`].
pub(super) const EXTENSION_SERVICE: &str = "ExtensionService";

/// The surroundings in all sources.
#[derive(Debug, Default)]
pub(super) struct Surroundings<'a> {
    pub(super) services: Vec<SelectingService<'a>>,
    pub(super) extension_services: Vec<ExtensionService<'a>>,
}

/// A service of Kubernetes.
#[derive(Debug)]
pub(super) struct SelectingService<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) selector: BTreeMap<&'a str, &'a str>,
}

/// A server outside of the mesh to which sidecars connect.
#[derive(Debug)]
pub(super) struct ExtensionService<'a> {
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) host: Option<&'a Spanned<DeValue<'a>>>,
    pub(super) port: Option<&'a Spanned<DeValue<'a>>>,
    pub(super) protocol: Option<&'a str>,
}

/// Whether resources of this kind are extension services, which have no effect unless another resource names
/// them.
pub(super) fn is_extension_service(group: &str, kind: &str) -> bool {
    (group, kind) == (OSM_CONFIG, EXTENSION_SERVICE)
}

impl<'a> Surroundings<'a> {
    /// Adds `resource`, if it is one of these.
    pub(super) fn add(&mut self, resource: &Resource<'a>) {
        let (Some((group, _)), Some(kind)) = (resource.api_version(), resource.kind()) else {
            return;
        };
        let (namespace, Some(name)) = (resource.namespace(), resource.name()) else { return };
        if (group, kind) == ("", "Service") {
            let selector = resource.below(&["spec", "selector"]).map(strings).unwrap_or_default();
            self.services.push(SelectingService { namespace, name, selector });
        } else if is_extension_service(group, kind) {
            let spec = resource.below(&["spec"]);
            let of = |key: &str| spec.and_then(|spec: &'a DeTable<'a>| spec.get(key));
            self.extension_services.push(ExtensionService {
                namespace,
                name,
                host: of("host"),
                port: of("port"),
                protocol: of("protocol").and_then(|value| value.get_ref().as_str()),
            });
        }
    }
}
