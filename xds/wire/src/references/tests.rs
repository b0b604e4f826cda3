use std::collections::BTreeSet;

use envoy_types::pb::envoy::config::cluster::v3::cluster::{
    ClusterDiscoveryType, EdsClusterConfig,
};
use envoy_types::pb::envoy::config::cluster::v3::Cluster;
use envoy_types::pb::envoy::config::core::v3::grpc_service::{EnvoyGrpc, TargetSpecifier};
use envoy_types::pb::envoy::config::core::v3::{
    ConfigSource, ExtensionConfigSource, GrpcService, TransportSocket, transport_socket,
};
use envoy_types::pb::envoy::config::listener::v3::{Filter, FilterChain, Listener, filter};
use envoy_types::pb::envoy::config::route::v3::route_action::{
    ClusterSpecifier, RequestMirrorPolicy,
};
use envoy_types::pb::envoy::config::route::v3::weighted_cluster::ClusterWeight;
use envoy_types::pb::envoy::config::route::v3::{
    Route, RouteAction, RouteConfiguration, VirtualHost, WeightedCluster, route,
};
use envoy_types::pb::envoy::extensions::access_loggers::grpc::v3::{
    CommonGrpcAccessLogConfig, TcpGrpcAccessLogConfig,
};
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::http_connection_manager::RouteSpecifier;
use envoy_types::pb::envoy::extensions::filters::network::http_connection_manager::v3::{
    HttpConnectionManager, Rds,
};
use envoy_types::pb::envoy::config::accesslog::v3::{AccessLog, access_log};
use envoy_types::pb::envoy::extensions::transport_sockets::tls::v3::{
    CommonTlsContext, DownstreamTlsContext, SdsSecretConfig,
};
use proptest::prelude::*;
use prost_reflect::{FieldDescriptor, MessageDescriptor};

use super::*;
use crate::canonical::tests::random;
use crate::descriptors::pool;
use crate::resource::{Discoverable, Resource, any};

/// The references of a message, as `<type> <name>`.
fn references<M: Discoverable>(message: &M) -> Vec<String> {
    let resource = Resource::new(message);
    for (of, name) in resource.references() {
        assert!(resource.refers_to(of, name));
        assert!(resource.references_to(of).any(|one| one == name));
    }
    for of in ResourceType::ALL {
        assert!(resource.references_to(of).all(|name| resource.refers_to(of, name)));
        assert!(!resource.refers_to(of, "") && !resource.refers_to(of, "no such name"));
    }
    resource.references().map(|(of, name)| format!("{of:?} {name}")).collect()
}

fn route_to(specifier: ClusterSpecifier, mirror: Option<&str>) -> Route {
    let mirror_of = |cluster: &str| RequestMirrorPolicy {
        cluster: cluster.to_owned(),
        ..RequestMirrorPolicy::default()
    };
    let action = RouteAction {
        cluster_specifier: Some(specifier),
        request_mirror_policies: mirror.into_iter().map(mirror_of).collect(),
        ..RouteAction::default()
    };
    Route { action: Some(route::Action::Route(action)), ..Route::default() }
}

#[test]
fn routes_refer_to_their_clusters_sorted_and_each_once() {
    let weight = |name: &str| ClusterWeight { name: name.to_owned(), ..ClusterWeight::default() };
    let weighted = WeightedCluster {
        clusters: vec![weight("default/c|80"), weight("default/a|80")],
        ..WeightedCluster::default()
    };
    let to = |name: &str| ClusterSpecifier::Cluster(name.to_owned());
    let routes = vec![
        route_to(to("default/b|80"), None),
        route_to(to("default/b|80"), Some("default/b|8080")),
        route_to(ClusterSpecifier::WeightedClusters(weighted), None),
        route_to(ClusterSpecifier::ClusterHeader("x-cluster".to_owned()), None),
    ];
    let configuration = RouteConfiguration {
        name: "default/d|80".to_owned(),
        virtual_hosts: vec![VirtualHost {
            name: "default/e|80".to_owned(),
            routes,
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    };
    let expected = ["default/a|80", "default/b|80", "default/b|8080", "default/c|80"];
    assert_eq!(references(&configuration), expected.map(|name| format!("Cluster {name}")));
    let resource = Resource::new(&configuration);
    for part in ["default/b|8", "efault/b|80", "default/b|808"] {
        assert!(!resource.refers_to(ResourceType::Cluster, part), "{part}");
    }
}

#[test]
fn listener_refers_through_extensions_to_all_types() {
    let grpc = GrpcService {
        target_specifier: Some(TargetSpecifier::EnvoyGrpc(EnvoyGrpc {
            cluster_name: "logs".to_owned(),
            ..EnvoyGrpc::default()
        })),
        ..GrpcService::default()
    };
    let log = TcpGrpcAccessLogConfig {
        common_config: Some(CommonGrpcAccessLogConfig {
            grpc_service: Some(grpc),
            ..CommonGrpcAccessLogConfig::default()
        }),
    };
    let rds = Rds { route_config_name: "routes".to_owned(), ..Rds::default() };
    let manager = HttpConnectionManager {
        route_specifier: Some(RouteSpecifier::Rds(rds)),
        access_log: vec![AccessLog {
            name: "not a reference".to_owned(),
            config_type: Some(access_log::ConfigType::TypedConfig(any(&log))),
            ..AccessLog::default()
        }],
        ..HttpConnectionManager::default()
    };
    let secret = |name: &str, sds_config| SdsSecretConfig { name: name.to_owned(), sds_config };
    let context = DownstreamTlsContext {
        common_tls_context: Some(CommonTlsContext {
            tls_certificate_sds_secret_configs: vec![
                secret("secret", Some(ConfigSource::default())),
                secret("of the bootstrap", None),
            ],
            ..CommonTlsContext::default()
        }),
        ..DownstreamTlsContext::default()
    };
    let filter =
        |name: &str, config_type| Filter { name: name.to_owned(), config_type: Some(config_type) };
    let listener = Listener {
        name: "listener".to_owned(),
        filter_chains: vec![FilterChain {
            name: "not a reference".to_owned(),
            filters: vec![
                filter(
                    "discovered",
                    filter::ConfigType::ConfigDiscovery(ExtensionConfigSource::default()),
                ),
                filter("in place", filter::ConfigType::TypedConfig(any(&manager))),
            ],
            transport_socket: Some(TransportSocket {
                name: "not a reference".to_owned(),
                config_type: Some(transport_socket::ConfigType::TypedConfig(any(&context))),
            }),
            ..FilterChain::default()
        }],
        ..Listener::default()
    };
    assert_eq!(
        references(&listener),
        ["ExtensionConfig discovered", "Secret secret", "Cluster logs", "Route routes"]
    );
}

#[test]
fn eds_cluster_refers_to_endpoints_by_service_name_or_its_own() {
    let cluster = |discovery_type: DiscoveryType, service: Option<&str>| Cluster {
        name: "a".to_owned(),
        cluster_discovery_type: Some(ClusterDiscoveryType::Type(discovery_type.into())),
        eds_cluster_config: service.map(|service| EdsClusterConfig {
            service_name: service.to_owned(),
            ..EdsClusterConfig::default()
        }),
        ..Cluster::default()
    };
    assert_eq!(references(&cluster(DiscoveryType::Eds, None)), ["Endpoint a"]);
    assert_eq!(references(&cluster(DiscoveryType::Eds, Some(""))), ["Endpoint a"]);
    assert_eq!(references(&cluster(DiscoveryType::Eds, Some("b"))), ["Endpoint b"]);
    assert!(references(&cluster(DiscoveryType::Static, None)).is_empty());
    assert!(references(&Cluster::default()).is_empty());
}

#[test]
fn declared_reference_is_one_of_all_references() {
    let routes = RouteConfiguration {
        virtual_hosts: vec![VirtualHost {
            routes: vec![route_to(ClusterSpecifier::Cluster("a".to_owned()), None)],
            ..VirtualHost::default()
        }],
        ..RouteConfiguration::default()
    };
    let plain = Resource::new(&routes);
    let resource = plain.clone().referring_to(ResourceType::Secret, "s").urgent();
    assert_eq!(resource.version(), plain.version());
    let all: Vec<_> = resource.references().collect();
    assert_eq!(all, [(ResourceType::Cluster, "a"), (ResourceType::Secret, "s")]);
    assert!(resource.refers_to(ResourceType::Secret, "s"));
    assert!(!resource.refers_to(ResourceType::Cluster, "s"));
    assert_eq!(resource.references_to(ResourceType::Secret).collect::<Vec<_>>(), ["s"]);
    assert_eq!(resource.references_to(ResourceType::Cluster).collect::<Vec<_>>(), ["a"]);
}

/// The same by asking the descriptors for every field, as slow and plain as can be.
fn by_descriptor(message: &MessageDescriptor, bytes: &[u8]) -> BTreeSet<(ResourceType, String)> {
    let (mut found, mut at) = (BTreeSet::new(), 0);
    let records: Vec<_> = std::iter::from_fn(|| {
        let record = Record::read(bytes, at)?;
        at = record.end;
        Some(record)
    })
    .collect();
    let any = AnyParts::read(bytes).filter(|_| message.full_name() == "google.protobuf.Any");
    let inside = any.and_then(|any| any.type_name);
    for record in &records {
        let payload = &bytes[record.range()];
        let kind = message.get_field(record.number).as_ref().map(FieldDescriptor::kind);
        let inner = match kind {
            Some(prost_reflect::Kind::Message(inner)) => Some(inner),
            _ if record.number == 2 => inside.and_then(|name| pool().get_message_by_name(name)),
            _ => None,
        };
        found.extend(inner.iter().flat_map(|inner| by_descriptor(inner, payload)));
        let Some(Plan::Message(fields)) = PLANS.of(message.full_name()) else { continue };
        if let Some(Step::Name(name)) = fields.step(record.number) {
            let has = |number| records.iter().any(|record| record.number == number);
            if name.source.is_none_or(has) {
                found.insert((name.of, String::from_utf8(payload.to_vec()).unwrap()));
            }
        }
    }
    found
}

proptest! {
    #[test]
    fn references_equal_those_of_a_descriptor_based_walk(
        mut chance in Just(()).prop_perturb(|(), chance| chance),
    ) {
        for name in [
            "envoy.config.route.v3.RouteConfiguration",
            "envoy.config.listener.v3.Listener",
            "envoy.config.endpoint.v3.ClusterLoadAssignment",
            "envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        ] {
            let message = pool().get_message_by_name(name).unwrap();
            let bytes = random(&message, &mut chance, 6);
            let references = References::read(name, &bytes, 0..bytes.len());
            let all = references.all(&bytes).map(|(of, name)| (of, name.to_owned()));
            let all: Vec<_> = all.collect();
            let expected: Vec<_> = by_descriptor(&message, &bytes).into_iter().collect();
            prop_assert_eq!(all, expected, "{}", name);
        }
    }
}
