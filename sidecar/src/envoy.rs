//! The bootstrap of an Envoy: its identity, the addresses of its control plane, and the files of its certificate.
//! Everything else comes by xDS.

mod admin;

use std::net::IpAddr;
use std::path::Path;

use ironmesh_catalog::{NodeMetadata, ProxyId, ServiceName, SpiffeId};
use serde_json::{Value, json};

pub use admin::{Admin, AdminSocketPathTooLong, check_admin_socket_path};

/// The name of the control plane's cluster in a bootstrap. Resources refer to it.
pub const CONTROL_PLANE_CLUSTER: &str = "ironmesh-control-plane";

/// The largest RE2 program that Envoy accepts. Its default, 100, rejects `[^/]{1,64}`.
const RE2_PROGRAM_SIZE: u32 = 1000;

/// The most downstream connections of Envoy. Without a limit Envoy logs a warning at its start.
const MAX_CONNECTIONS: u64 = 50_000;

/// The inputs of a bootstrap.
#[derive(Debug, Clone)]
pub struct Bootstrap<'a> {
    /// The proxy, as its node id.
    pub proxy: ProxyId,
    /// Its first service, as its node cluster.
    pub service: &'a ServiceName,
    /// Its node metadata.
    pub metadata: &'a NodeMetadata,
    /// The address of listeners for its own machine.
    pub local_address: IpAddr,
    /// The access to its admin interface.
    pub admin: Admin,
    /// Host and port of each replica of the control plane.
    pub control_plane: &'a [(String, u16)],
    /// The SPIFFE ID that the control plane must present.
    pub control_plane_id: &'a SpiffeId,
    /// The folder of the files below.
    pub folder: &'a Path,
}

/// A file to write beside the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name in the folder.
    pub name: &'static str,
    /// Its content.
    pub content: String,
}

/// The name of the main configuration file.
pub const CONFIGURATION: &str = "envoy.yaml";
/// The name of the file that holds the proxy's certificate.
pub const CERTIFICATE: &str = "proxy.crt";
/// The name of the file that holds the proxy's key.
pub const KEY: &str = "proxy.key";
/// The name of the file that holds the roots of the mesh.
pub const ROOTS: &str = "ca.crt";

impl Bootstrap<'_> {
    /// The files of the bootstrap, except the key and the certificates.
    ///
    /// They are JSON, which is also YAML. Envoy reads the certificate and the roots by file SDS with a watched folder. A
    /// renewal moves new files into place, and so needs no restart.
    pub fn files(&self) -> Vec<File> {
        let certificate = json!({ "resources": [{
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            "name": "proxy-certificate",
            "tls_certificate": {
                "certificate_chain": { "filename": self.path(CERTIFICATE) },
                "private_key": { "filename": self.path(KEY) },
                "watched_directory": { "path": self.folder },
            },
        }]});
        let roots = json!({ "resources": [{
            "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.Secret",
            "name": "control-plane-roots",
            "validation_context": {
                "trusted_ca": { "filename": self.path(ROOTS) },
                "watched_directory": { "path": self.folder },
                "match_typed_subject_alt_names": [
                    { "san_type": "URI", "matcher": { "exact": self.control_plane_id.as_str() } },
                ],
            },
        }]});
        vec![
            File { name: CONFIGURATION, content: pretty(&self.configuration()) },
            File { name: "sds-certificate.yaml", content: pretty(&certificate) },
            File { name: "sds-roots.yaml", content: pretty(&roots) },
        ]
    }

    fn configuration(&self) -> Value {
        json!({
            "node": {
                "id": self.proxy.to_string(),
                "cluster": self.service.to_string(),
                "metadata": { "ironmesh": self.metadata },
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
                "clusters": [self.control_plane_cluster(), self.admin_cluster()],
            },
            "layered_runtime": { "layers": [{
                "name": "ironmesh",
                "static_layer": {
                    "re2": { "max_program_size": { "error_level": RE2_PROGRAM_SIZE } },
                },
            }]},
            "overload_manager": { "resource_monitors": [{
                "name": "envoy.resource_monitors.global_downstream_max_connections",
                "typed_config": {
                    "@type": "type.googleapis.com/envoy.extensions.resource_monitors.downstream_connections.v3.DownstreamConnectionsConfig",
                    "max_active_downstream_connections": MAX_CONNECTIONS,
                },
            }]},
        })
    }

    fn control_plane_cluster(&self) -> Value {
        let endpoints: Vec<_> = self
            .control_plane
            .iter()
            .map(|(host, port)| json!({ "endpoint": { "address": socket(host, *port) } }))
            .collect();
        // Names are resolved; addresses need no DNS.
        let is_address = |(host, _): &(String, u16)| host.parse::<IpAddr>().is_ok();
        let discovery =
            if self.control_plane.iter().all(is_address) { "STATIC" } else { "STRICT_DNS" };
        json!({
            "name": CONTROL_PLANE_CLUSTER,
            "type": discovery,
            "connect_timeout": "5s",
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

    fn path(&self, file: &str) -> Value {
        json!(self.folder.join(file))
    }
}

fn socket(host: &str, port: u16) -> Value {
    json!({ "socket_address": { "address": host, "port_value": port } })
}

fn pretty(value: &Value) -> String {
    format!("{value:#}\n")
}
