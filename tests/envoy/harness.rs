//! Tests of the test harness itself, on an Envoy with a static configuration.
//!
//! A filter that matches no stat, or load that sends nothing, would let other tests pass for
//! nothing.

use ironmesh_tests::programs::require_envoy;
use ironmesh_tests::{App, Envoy, Http1Connection, Http2Connection, Load, Loopback};

/// One listener for HTTP/1.1 and HTTP/2, with an application for each.
const BOOTSTRAP: &str = r#"
admin: { address: { socket_address: { address: ADDRESS, port_value: 15000 } } }
static_resources:
  listeners:
  - name: outbound
    address: { socket_address: { address: ADDRESS, port_value: 15080 } }
    filter_chains:
    - filters:
      - name: envoy.filters.network.http_connection_manager
        typed_config:
          "@type": type.googleapis.com/envoy.extensions.filters.network.http_connection_manager.v3.HttpConnectionManager
          stat_prefix: outbound
          http_filters:
          - name: envoy.filters.http.router
            typed_config: { "@type": type.googleapis.com/envoy.extensions.filters.http.router.v3.Router }
          route_config:
            virtual_hosts:
            - name: all
              domains: ["*"]
              routes:
              - { match: { path: /echo }, route: { cluster: "default/ledger|14002", timeout: 0s } }
              - { match: { prefix: / }, route: { cluster: "default/bookstore-v1|14001", timeout: 0s } }
  clusters:
  - name: "default/bookstore-v1|14001"
    load_assignment:
      cluster_name: "default/bookstore-v1|14001"
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: ADDRESS, port_value: 8080 } } } }] }]
  - name: "default/ledger|14002"
    typed_extension_protocol_options:
      envoy.extensions.upstreams.http.v3.HttpProtocolOptions:
        "@type": type.googleapis.com/envoy.extensions.upstreams.http.v3.HttpProtocolOptions
        explicit_http_config: { http2_protocol_options: {} }
    load_assignment:
      cluster_name: "default/ledger|14002"
      endpoints: [{ lb_endpoints: [{ endpoint: { address: { socket_address: { address: ADDRESS, port_value: 8081 } } } }] }]
"#;

#[tokio::test(flavor = "multi_thread")]
async fn harness_measures_a_fixed_envoy_correctly() {
    let Some(program) = require_envoy() else { return };
    let loopback = Loopback::claim();
    let folder = tempfile::tempdir().unwrap();
    let bootstrap = BOOTSTRAP.replace("ADDRESS", &loopback.host(11).to_string());
    fs_err::write(folder.path().join("envoy.yaml"), bootstrap).unwrap();
    let web = App::http1("bookstore-v1", loopback.socket(11, 8080)).await;
    let ledger = App::http2("ledger", loopback.socket(11, 8081)).await;
    let mut envoy = Envoy::start(&program, "fixed", folder.path(), loopback.host(11), 30).await;

    // A request by either protocol.
    let outbound = envoy.socket(15080);
    let mut http1 = Http1Connection::connect(outbound).await.unwrap();
    let mut http2 = Http2Connection::connect(outbound).await.unwrap();
    assert_eq!(http1.get("/books/1", "bookstore").await.unwrap().json()["app"], "bookstore-v1");
    assert_eq!(http2.get("/books/2", "bookstore").await.unwrap().json()["path"], "/books/2");
    assert_eq!((web.requests(), ledger.requests()), (2, 0));

    // Stats by name and by filter.
    let name = "cluster.default/bookstore-v1|14001.upstream_rq_total";
    assert_eq!(envoy.stat(name).await, 2);
    let both = envoy.stats(r"^cluster\.default/.*\|\d+\.upstream_rq_total$").await;
    assert_eq!(both.len(), 2, "{both:?}");
    assert_eq!(envoy.sum("no such stat").await, 0);
    assert!(envoy.config_dump().await["configs"].is_array());
    assert!(envoy.serials().await.is_empty());

    // Load with a long stream; then with an application that is gone.
    let load = Load::start(outbound, "bookstore", "/books/1");
    let load = load.with_stream(outbound, "ledger").await.unwrap();
    let report = load.finish().await;
    report.assert_undisturbed();
    assert!(report.stream_messages > 0);
    assert_eq!(ledger.requests(), 1);

    let load = Load::start(outbound, "bookstore", "/books/1");
    drop(web);
    let report = load.finish().await;
    assert!(report.by_status[&503] > 0 && report.failed >= report.by_status[&503], "{report:?}");
    envoy.assert_running();
    envoy.stop().await;
}
