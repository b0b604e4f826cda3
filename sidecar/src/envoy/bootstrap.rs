//! The bootstrap of an Envoy: its identity, the addresses of its control plane, and the files of its certificate.
//! Everything else comes by xDS.

use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::{CertificateSource, NodeMetadata};
use serde_json::{Value, json};

use super::{
    CERTIFICATE, CONFIGURATION, CONTROL_PLANE_CLUSTER, EnvoyPorts, KEY, ROOTS, WITHDRAWALS_LAYER,
};
use crate::{File, Workload};

/// The largest RE2 program that Envoy accepts. Its default, 100, rejects `[^/]{1,64}`.
const RE2_PROGRAM_SIZE: u32 = 1000;

/// The most downstream connections of Envoy. Without a limit Envoy logs a warning at its start.
const MAX_CONNECTIONS: u64 = 50_000;

/// The bootstrap of an Envoy.
#[derive(Debug, Clone, Copy)]
pub(super) struct Bootstrap<'a> {
    /// The proxy.
    pub(super) workload: &'a Workload,
    /// The ports of its own listeners.
    pub(super) ports: EnvoyPorts,
}

impl Bootstrap<'_> {
    /// The files by which Envoy reads the certificate and the roots: by file SDS with a watched folder. A renewal moves
    /// new files into place, and so needs no restart.
    pub(super) fn secrets(&self) -> Vec<File> {
        let certificate = json!({ "resources": [{
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            "name": "proxy-certificate",
            "tls_certificate": {
                "certificate_chain": { "filename": self.path(CERTIFICATE) },
                "private_key": { "filename": self.path(KEY) },
                "watched_directory": { "path": self.workload.folder },
            },
        }]});
        let roots = json!({ "resources": [{
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            "name": "control-plane-roots",
            "validation_context": {
                "trusted_ca": { "filename": self.path(ROOTS) },
                "watched_directory": { "path": self.workload.folder },
                "match_typed_subject_alt_names": [
                    { "san_type": "URI", "matcher": { "exact": self.workload.control_plane_id.as_str() } },
                ],
            },
        }]});
        vec![
            File { name: "sds-certificate.yaml", content: pretty(&certificate) },
            File { name: "sds-roots.yaml", content: pretty(&roots) },
        ]
    }

    /// The main configuration file. It is JSON, which is also YAML.
    pub(super) fn file(configuration: &Value) -> File {
        File { name: CONFIGURATION, content: pretty(configuration) }
    }

    /// The content of the main configuration file.
    pub(super) fn configuration(&self) -> Value {
        let workload = self.workload;
        let bootstrap_version = NodeMetadata::BOOTSTRAP_VERSION;
        let control_plane =
            workload.control_plane.iter().map(|(host, port)| authority(host, *port)).collect();
        let metadata =
            NodeMetadata { bootstrap_version, control_plane, ..workload.metadata.clone() };
        let own = [self.control_plane_cluster(), self.admin_cluster()];
        let clusters: Vec<_> = own
            .into_iter()
            .chain(self.agent_cluster())
            .chain(self.certificates_cluster())
            .collect();
        let mut bootstrap = json!({
            "node": {
                "id": workload.id.to_string(),
                "cluster": workload.service.to_string(),
                "metadata": { "ironmesh": metadata },
            },
            "admin": { "address": self.admin_address() },
            "dynamic_resources": {
                "ads_config": {
                    "api_type": "DELTA_GRPC",
                    "transport_api_version": "V3",
                    // Otherwise each request and ACK would carry all 61 KB of the node.
                    "set_node_on_first_message_only": true,
                    "grpc_services": [{ "envoy_grpc": {
                        "cluster_name": CONTROL_PLANE_CLUSTER,
                        // By default the backoff grows to 30 s. For so long a proxy would miss changes
                        // of a restarted control plane. Envoy waits a random part of the interval, so
                        // a fleet reconnects spread out.
                        "retry_policy": { "retry_back_off": {
                            "base_interval": "0.5s",
                            "max_interval": "1s",
                        }},
                    }}],
                },
                "cds_config": { "ads": {}, "resource_api_version": "V3" },
                "lds_config": { "ads": {}, "resource_api_version": "V3" },
            },
            "static_resources": {
                "listeners": [self.metrics_listener()],
                "clusters": clusters,
            },
            "layered_runtime": { "layers": [
                {
                    "name": "ironmesh",
                    "static_layer": {
                        "re2": { "max_program_size": { "error_level": RE2_PROGRAM_SIZE } },
                    },
                },
                // Envoy requests it first, and starts after 15 s without an answer.
                {
                    "name": WITHDRAWALS_LAYER,
                    "rtds_layer": {
                        "name": WITHDRAWALS_LAYER,
                        "rtds_config": { "ads": {}, "resource_api_version": "V3" },
                    },
                },
            ]},
            // Connections to a TCP port go on to a listener without a socket, which has a filter chain per caller.
            "bootstrap_extensions": [{
                "name": "envoy.bootstrap.internal_listener",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.bootstrap.internal_listener.v3.InternalListener",
                },
            }],
            "overload_manager": { "resource_monitors": [{
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                    "max_active_downstream_connections": MAX_CONNECTIONS,
                },
            }]},
        });
        // Beside an agent, the agent probes the applications.
        let probes_applications = workload.metadata.certificates == CertificateSource::Ads;
        if let Some(fields) = bootstrap.as_object_mut().filter(|_| probes_applications) {
            let config = json!({
                "api_type": "GRPC",
                "transport_api_version": "V3",
                "grpc_services": [{ "envoy_grpc": { "cluster_name": CONTROL_PLANE_CLUSTER } }],
            });
            fields.insert("hds_config".to_owned(), config);
        }
        bootstrap
    }

    fn control_plane_cluster(&self) -> Value {
        let control_plane = &self.workload.control_plane;
        let endpoints: Vec<_> = control_plane
            .iter()
            .map(|(host, port)| json!({ "endpoint": { "address": socket(host, *port) } }))
            .collect();
        // Names are resolved; addresses need no DNS.
        let is_address = |(host, _): &(String, u16)| host.parse::<IpAddr>().is_ok();
        let discovery = if control_plane.iter().all(is_address) { "STATIC" } else { "STRICT_DNS" };
        json!({
            "name": CONTROL_PLANE_CLUSTER,
            "type": discovery,
            "connect_timeout": "5s",
            // Envoy opens two streams on a new connection: ADS and health discovery. In turn, each of them would come
            // back to the same one of two control planes for ever.
            "lb_policy": "RANDOM",
            "load_assignment": {
                "cluster_name": CONTROL_PLANE_CLUSTER,
                "endpoints": [{ "lb_endpoints": endpoints }],
            },
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": { "http2_protocol_options": {
                        "connection_keepalive": { "interval": "30s", "timeout": "5s" },
                    }},
                },
            },
            "transport_socket": {
                "name": "envoy.transport_sockets.tls",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
                    "common_tls_context": {
                        // As a client Envoy defaults to TLS 1.2 at most, which the control plane rejects.
                        "tls_params": {
                            "tls_minimum_protocol_version": "TLSv1_3",
                            "tls_maximum_protocol_version": "TLSv1_3",
                        },
                        "tls_certificate_sds_secret_configs": [
                            self.sds("proxy-certificate", "sds-certificate.yaml"),
                        ],
                        "validation_context_sds_secret_config":
                            self.sds("control-plane-roots", "sds-roots.yaml"),
                    },
                },
            },
        })
    }

    fn sds(&self, secret: &str, file: &str) -> Value {
        json!({
            "name": secret,
            "sds_config": {
                "resource_api_version": "V3",
                "path_config_source": { "path": self.path(file) },
            },
        })
    }

    pub(super) fn path(&self, file: &str) -> Value {
        json!(self.workload.folder.join(file))
    }
}

pub(super) fn socket(host: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": host, "port_value": port } })
}

/// `host:port`, with an IPv6 address in brackets.
fn authority(host: &str, port: u16) -> String {
    match host.parse::<IpAddr>() {
        Ok(address) => SocketAddr::new(address, port).to_string(),
        Err(_) => format!("{host}:{port}"),
    }
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
