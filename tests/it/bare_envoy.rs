//! A bootstrap for a real Envoy without a mesh, connected to a test's xDS server.

use std::net::SocketAddr;

use serde_json::{Value, json};

use crate::server::Server;
use ironmesh_tests::authority::Identity;

/// A bootstrap of `client` with its admin port at `admin`. Its cluster `xds` leads to the server,
/// and `dynamic` is its `dynamic_resources`.
pub(crate) fn bootstrap(
    server: &Server,
    client: &Identity,
    admin: SocketAddr,
    dynamic: &Value,
) -> String {
    let socket = |address: SocketAddr| {
        let (address, port) = (address.ip().to_string(), address.port());
        json!({ "socket_address": { "address": address, "port_value": port } })
    };
    let tls = json!({
        "@type": "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext",
        "common_tls_context": {
            "tls_params": { "tls_maximum_protocol_version": "TLSv1_3" },
            "tls_certificates": [{
                "certificate_chain": { "inline_string": client.chain },
                "private_key": { "inline_string": client.key },
            }],
            "validation_context": {
                "trusted_ca": { "inline_string": server.authority.roots_pem() },
            },
        },
    });
    json!({
        "node": { "id": client.name(), "cluster": "bare" },
        "admin": { "address": socket(admin) },
        "dynamic_resources": dynamic,
        "static_resources": { "clusters": [{
            "name": "xds",
            "type": "STATIC",
            "load_assignment": { "cluster_name": "xds", "endpoints": [{ "lb_endpoints": [{
                "endpoint": { "address": socket(server.address) },
            }]}]},
            "typed_extension_protocol_options": {
                "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                    "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                    "explicit_http_config": { "http2_protocol_options": {} },
                },
            },
            "transport_socket": { "name": "envoy.transport_sockets.tls", "typed_config": tls },
        }]},
    })
    .to_string()
}
