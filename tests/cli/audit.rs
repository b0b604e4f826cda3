//! What a proxy may tell of, in audit; and what `ironmesh status` says, without an Envoy.

use ironmesh_tests::xds::Imposter;
use ironmesh_tests::{eventually, get_once};
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::data::accesslog::v3::tls_properties::CertificateProperties;
use ironmesh_xds_wire::pb::envoy::data::accesslog::v3::tls_properties::certificate_properties::{
    SubjectAltName, subject_alt_name::San,
};
use ironmesh_xds_wire::pb::envoy::data::accesslog::v3::{
    AccessLogCommon, HttpAccessLogEntry, HttpRequestProperties, TlsProperties,
};
use ironmesh_xds_wire::pb::envoy::service::accesslog::v3::StreamAccessLogsMessage;
use ironmesh_xds_wire::pb::envoy::service::accesslog::v3::access_log_service_client::AccessLogServiceClient;
use ironmesh_xds_wire::pb::envoy::service::accesslog::v3::stream_access_logs_message::{
    HttpAccessLogEntries, Identifier, LogEntries,
};
use serde_json::Value;

use crate::server::Server;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "till"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "safe"
visibility = "private"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "open"
mode = "permissive"
ports = [{ port = 80, protocol = "http" }]
"#;

/// A request of `path` on a port, by one who showed this URI.
fn call(cluster: &str, uri: &str, path: &str) -> HttpAccessLogEntry {
    let name = SubjectAltName { san: Some(San::Uri(uri.to_owned())) };
    let certificate =
        CertificateProperties { subject_alt_name: vec![name], ..CertificateProperties::default() };
    HttpAccessLogEntry {
        common_properties: Some(AccessLogCommon {
            upstream_cluster: cluster.to_owned(),
            tls_properties: Some(TlsProperties {
                peer_certificate_properties: Some(certificate),
                ..TlsProperties::default()
            }),
            ..AccessLogCommon::default()
        }),
        request: Some(HttpRequestProperties {
            path: path.to_owned(),
            ..HttpRequestProperties::default()
        }),
        ..HttpAccessLogEntry::default()
    }
}

// A83. The last call is one that is taken, so that the others were looked at before.
#[tokio::test(flavor = "multi_thread")]
async fn a_proxy_is_believed_about_what_it_serves_and_of_callers_of_the_mesh_alone() {
    let Some(server) = Server::open("mode = \"audit\"") else { return };
    server.place.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    let admin = server.loopback.socket(1, 15014);
    let run = server.run(&["status"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.starts_with("control plane  serves\npolicy         revision "), "{run:?}");

    let services = ["--service", "till", "--service", "safe", "--service", "open"];
    let rest = ["--address", "127.1.0.1", "--out", "proxy"];
    let run = server.run(&[&["proxy", "bootstrap"], &services[..], &rest].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let xds = server.loopback.socket(1, 15128);
    let proxy = Imposter::connect(&server.place.path().join("proxy"), xds).await.unwrap();
    let caller = "spiffe://mesh.internal/ns/office/sa/clerk";
    let calls = vec![
        call("default/store|80|local", caller, "/of-another"),
        call("default/till|81|local", caller, "/no-such-port"),
        call("default/safe|80|local", caller, "/private"),
        call("default/open|80|local", caller, "/not-in-audit"),
        call("default/till|80", caller, "/not-local"),
        call("", caller, "/nowhere"),
        call("default/till|80|local", "spiffe://elsewhere/ns/office/sa/clerk", "/of-others"),
        call("default/till|80|local", "spiffe://mesh.internal/proxy/x", "/no-account"),
        call("default/till|80|local", caller, "/taken\u{1b}[2J?token=1"),
    ];
    let node = Node { id: proxy.node_id.clone(), ..Node::default() };
    let message = StreamAccessLogsMessage {
        identifier: Some(Identifier { node: Some(node), log_name: String::new() }),
        log_entries: Some(LogEntries::HttpLogs(HttpAccessLogEntries { log_entry: calls })),
    };
    let mut client = AccessLogServiceClient::new(proxy.channel().clone());
    client.stream_access_logs(tokio_stream::once(message)).await.unwrap();
    let view = eventually("what is taken", async || {
        let view = get_once(admin, "/v1/audit", &[]).await.unwrap().json();
        if view["denied"] == serde_json::json!([]) { Err(view) } else { Ok(view) }
    })
    .await;
    let [denied] = &view["denied"].as_array().unwrap()[..] else { panic!("{view:#}") };
    assert_eq!((&denied["service"], &denied["count"]), (&"default/till".into(), &1.into()));
    assert_eq!(denied["requests"][0]["example"], "/taken?[2J");

    let run = server.run(&["status", "--output", "json"]);
    assert_eq!(run.code, 1, "{run:?}");
    let told: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(told["audit"], view);
    let wrong = told["wrong"].as_array().unwrap();
    // It has no stream of xDS.
    assert!(wrong[0].as_str().unwrap().starts_with("1 proxy is away: "), "{told:#}");
    assert!(wrong[1].as_str().unwrap().contains("`office/clerk`"), "{told:#}");
    assert_eq!(wrong.len(), 2, "{told:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn status_says_first_what_is_wrong() {
    let Some(server) = Server::open("") else { return };
    assert_eq!(server.run(&["status"]).code, 4, "nothing runs");
    server.place.write("policy/services.toml", "[[service]]\nname = \"Store\"\n");
    let _child = server.start().await;
    let run = server.run(&["status"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stdout.starts_with("wrong: the control plane does not serve yet"), "{run:?}");

    server.place.write("policy/services.toml", POLICY);
    server.ready().await;
    server.place.write("policy/services.toml", "[[service]]\nname = \"Store\"\n");
    eventually("a policy that is refused", async || match server.run(&["status"]) {
        run if run.stdout.contains("is refused since") && run.code == 1 => Ok(()),
        run => Err(format!("{run:?}")),
    })
    .await;
}
