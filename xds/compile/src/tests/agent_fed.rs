//! Proxies with certificates from their agents: no key of an account reaches them, and everything else
//! is the same.

use ironmesh_catalog::{CertificateSource, Proxy};
use ironmesh_xds_wire::ResourceType;
use proptest::prelude::*;
use serde_json::Value;

use super::mesh::{PartOrder, shape};
use super::{compile, content, each, versions};
use crate::Compiled;

const TYPES: [ResourceType; 5] = [
    ResourceType::Cluster,
    ResourceType::Endpoint,
    ResourceType::Listener,
    ResourceType::Route,
    ResourceType::Secret,
];

pub(super) fn fed_by_agents(proxies: &[Proxy]) -> Vec<Proxy> {
    let mut proxies = proxies.to_vec();
    for proxy in &mut proxies {
        proxy.metadata.certificates = CertificateSource::Agent;
    }
    proxies
}

/// The sources of all certificates that the resources name.
fn sources(compiled: &Compiled) -> Vec<Value> {
    let mut sources = Vec::new();
    for resource in compiled.resources.iter() {
        each(&resource.to_json(), "tlsCertificateSdsSecretConfigs", &mut |configs| {
            let configs = configs.as_array().into_iter().flatten();
            sources.extend(configs.map(|config| config["sdsConfig"].clone()));
        });
    }
    sources
}

/// The JSON without the sources of certificates, and without the number of replaced shared certificates, which an
/// agent-fed proxy does not have.
fn without_sources(mut value: Value) -> Value {
    fn remove(value: &mut Value) {
        match value {
            Value::Array(items) => items.iter_mut().for_each(remove),
            Value::Object(fields) => {
                if let Some(Value::Array(configs)) =
                    fields.get_mut("tlsCertificateSdsSecretConfigs")
                {
                    for config in configs {
                        config["sdsConfig"] = Value::Null;
                    }
                }
                let is_number =
                    |metadata: &Value| !metadata["filterMetadata"]["ironmesh"].is_null();
                if fields.get("metadata").is_some_and(is_number) {
                    fields.remove("metadata");
                }
                fields.values_mut().for_each(remove);
            }
            _ => {}
        }
    }
    remove(&mut value);
    value
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(48))]

    #[test]
    fn agent_fed_proxy_differs_only_in_its_certificates(shape in shape()) {
        let (mut snapshot, proxies) = shape.build(PartOrder::default());
        let usual = compile(snapshot.clone(), &proxies);
        let with_all = snapshot.certificates.clone();
        // Nor does it need the account's certificate.
        snapshot.certificates = <_>::default();
        let without = compile(snapshot.clone(), &fed_by_agents(&proxies));
        snapshot.certificates = with_all;
        let fed = compile(snapshot, &fed_by_agents(&proxies));
        prop_assert_eq!(versions(&fed), versions(&without));
        for ((_, fed), (_, usual)) in fed.iter().zip(&usual) {
            for source in sources(fed) {
                prop_assert_eq!(&source["initialFetchTimeout"], "0s");
                let services = &source["apiConfigSource"]["grpcServices"];
                prop_assert_eq!(&services[0]["envoyGrpc"]["clusterName"], "ironmesh-certificates");
            }
            prop_assert_eq!(&fed.serves.0, &usual.serves.0);
            for of in TYPES {
                let mut usual = content(usual, of);
                usual.retain(|name, _| !name.starts_with("service-cert"));
                let fed = content(fed, of).into_iter();
                let fed: Vec<_> = fed.map(|(name, one)| (name, without_sources(one))).collect();
                let usual = usual.into_iter();
                let usual: Vec<_> = usual.map(|(name, one)| (name, without_sources(one))).collect();
                prop_assert_eq!(fed, usual);
            }
        }
    }
}
