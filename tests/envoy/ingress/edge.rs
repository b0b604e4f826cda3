//! An edge proxy: an operator's Envoy, enrolled for its certificate, with a listener and a route
//! that its operators configure.

use ironmesh_tests::{App, Envoy, Mesh, Programs, ProxyOptions, eventually, get_once};
use serde_json::{Value, json};

use super::{SERVICES, SNI};
use crate::bookstore::ensure_status;

/// Adds a public listener and the cluster of the store to an enrolled proxy's bootstrap, as in
/// docs/guides/ingress.md.
fn add_edge_listener(mut bootstrap: Value, world: (&str, u16), store: (&str, u16)) -> Value {
    let at = |(address, port): (&str, u16)| json!({ "socket_address": { "address": address, "port_value": port } });
    // Not by ADS: Envoy 1.40 crashes on ADS secrets in a bootstrap cluster.
    let control_plane = json!({ "envoy_grpc": { "cluster_name": "ironmesh-control-plane" } });
    let from_the_mesh = json!({
        "resource_api_version": "V3",
        "api_config_source": {
            "api_type": "DELTA_GRPC",
            "transport_api_version": "V3",
            "set_node_on_first_message_only": true,
            "grpc_services": [control_plane],
        },
    });
    let tls = "type.googleapis.com/envoy.extensions.transport_sockets.tls.v3.UpstreamTlsContext";
    let cluster = json!({
        "name": "store-from-outside",
        "typed_extension_protocol_options": {
            "envoy.extensions.upstreams.http.v3.HttpProtocolOptions": {
                "@type": "type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions",
                "auto_config": {},
            },
        },
        "load_assignment": {
            "cluster_name": "store-from-outside",
            "endpoints": [{ "lb_endpoints": [{ "endpoint": { "address": at(store) } }] }],
        },
        "transport_socket": {
            "name": "envoy.transport_sockets.tls",
            "typed_config": {
                "@type": tls,
                "sni": SNI,
                "max_session_keys": 0,
                "common_tls_context": {
                    "tls_params": { "tls_minimum_protocol_version": "TLSv1_3", "tls_maximum_protocol_version": "TLSv1_3" },
                    "tls_certificate_sds_secret_configs": [
                        { "name": "service-cert:default/edge", "sds_config": from_the_mesh },
                    ],
                    "combined_validation_context": {
                        "default_validation_context": {
                            "match_typed_subject_alt_names": [{
                                "san_type": "URI",
                                "matcher": { "exact": "spiffe://mesh.internal/ns/default/sa/store" },
                            }],
                        },
                        "validation_context_sds_secret_config": { "name": "roots", "sds_config": from_the_mesh },
                    },
                },
            },
        },
    });
    let router = json!({
        "name": "envoy.filters.http.router",
        "typed_config": { "@type": "type.googleapis.com/envoy.extensions.filters.http.router.v3.Router" },
    });
    let listener = json!({
        "name": "world",
        "address": at(world),
        "filter_chains": [{ "filters": [{
            "name": "envoy.filters.network.http_connection_manager",
            "typed_config": {
                "@type": "type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager",
                "stat_prefix": "world",
                "use_remote_address": true,
                "http_filters": [router],
                "route_config": { "virtual_hosts": [{
                    "name": "store",
                    "domains": ["*"],
                    "routes": [{ "match": { "prefix": "/" }, "route": { "cluster": "store-from-outside" } }],
                }] },
            },
        }] }],
    });
    let fixed = bootstrap.get_mut("static_resources").unwrap().as_object_mut().unwrap();
    for (kind, one) in [("clusters", cluster), ("listeners", listener)] {
        let list = fixed.entry(kind).or_insert_with(|| json!([]));
        list.as_array_mut().unwrap().push(one);
    }
    bootstrap
}

#[tokio::test(flavor = "multi_thread")]
async fn edge_envoy_is_authorized_by_its_mesh_certificate() {
    let Some(programs) = Programs::find() else { return };
    let policy = r#"
[[ingress_backend]]
name = "store"
backends = [
  { name = "store", port = { number = 14001, protocol = "https" }, tls = { sni_hosts = ["store.example.com"] } },
]
sources = [{ kind = "AuthenticatedPrincipal", name = "spiffe://mesh.internal/ns/default/sa/edge" }]
matches = [{ kind = "HTTPRouteGroup", name = "store" }]
"#;
    let files = [("services.toml", SERVICES), ("ingress.toml", policy)];
    let mesh = Mesh::start(&programs, &files).await;
    let _app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
    let _server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
    let folder = mesh.bootstrap(&ProxyOptions::new("default/edge", 31)).await;
    let (edge, store) = (mesh.loopback().host(31), mesh.loopback().host(21));
    let file = folder.join("envoy.yaml");
    let bootstrap = serde_json::from_str(&fs_err::read_to_string(&file).unwrap()).unwrap();
    let (world, at) = (edge.to_string(), store.to_string());
    let bootstrap = add_edge_listener(bootstrap, (&world, 8000), (&at, 15003));
    fs_err::write(&file, bootstrap.to_string()).unwrap();
    let envoy = Envoy::start(&programs.envoy, "edge", &folder, edge, 30).await;

    eventually("the world to reach the store by the edge", async || {
        let answer =
            get_once(envoy.socket(8000), "/books/1", &[("host", "store.example.com")]).await?;
        ensure_status(&answer, 200)?;
        let seen = &answer.json()["headers"];
        let shown = seen["x-forwarded-client-cert"].as_str().unwrap_or_default();
        anyhow::ensure!(
            shown.contains(";URI=spiffe://mesh.internal/ns/default/sa/edge;DNS="),
            "{seen}"
        );
        Ok(())
    })
    .await;
    let rejected = get_once(envoy.socket(8000), "/admin", &[]).await.unwrap();
    assert_eq!(rejected.status, 403);
}
