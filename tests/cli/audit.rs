//! What a proxy may report in audit mode, without an Envoy.

use ironmesh_tests::xds::ProxyClient;
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
name = "clerk"
namespace = "office"

[[service]]
name = "open"
mode = "permissive"
ports = [{ port = 80, protocol = "http" }]
"#;

/// A request for `path` on a port, from a caller with this URI SAN.
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

/// The access log message of a proxy with these calls.
fn message(proxy: &ProxyClient, calls: Vec<HttpAccessLogEntry>) -> StreamAccessLogsMessage {
    let node = Node { id: proxy.node_id.clone(), ..Node::default() };
    StreamAccessLogsMessage {
        identifier: Some(Identifier { node: Some(node), log_name: String::new() }),
        log_entries: Some(LogEntries::HttpLogs(HttpAccessLogEntries { log_entry: calls })),
    }
}

/// A83. The last call is valid, so the ones before it were processed.
#[tokio::test(flavor = "multi_thread")]
async fn audit_counts_only_own_services_and_mesh_callers() {
    let Some(server) = Server::open("mode = \"audit\"") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    let admin = server.loopback.socket(1, 15014);
    let run = server.run(&["status"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.starts_with("control plane  ready\npolicy         revision "), "{run:?}");

    let services = ["--service", "till", "--service", "safe", "--service", "open"];
    let rest = ["--address", "127.1.0.1", "--out", "proxy"];
    let run = server.run(&[&["proxy", "bootstrap"], &services[..], &rest].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let xds = server.loopback.socket(1, 15128);
    let proxy = ProxyClient::connect(&server.workspace.path().join("proxy"), xds).await.unwrap();
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
        call("default/till|80|local", "spiffe://mesh.internal/ns/office/sa/x", "/of-nobody"),
        call("default/till|80|local", caller, "/taken\u{1b}[2J?token=1"),
    ];
    let mut client = AccessLogServiceClient::new(proxy.channel().clone());
    client.stream_access_logs(tokio_stream::once(message(&proxy, calls))).await.unwrap();
    let view = eventually("the valid calls", async || {
        let view = get_once(admin, "/v1/audit", &[]).await.unwrap().json();
        if view["denied"] == serde_json::json!([]) { Err(view) } else { Ok(view) }
    })
    .await;
    let [denied] = &view["denied"].as_array().unwrap()[..] else { panic!("{view:#}") };
    assert_eq!((&denied["service"], &denied["count"]), (&"default/till".into(), &1.into()));
    assert_eq!(denied["requests"][0]["example"], "/taken?[2J");

    let run = server.run(&["status", "--output", "json"]);
    assert_eq!(run.code, 1, "{run:?}");
    let reported: Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(reported["audit"], view);
    let wrong = reported["wrong"].as_array().unwrap();
    // It has no xDS stream, so no endpoint of its services is usable.
    let wrong: Vec<_> = wrong.iter().map(|one| one.as_str().unwrap()).collect();
    let (outages, others): (Vec<_>, Vec<_>) =
        wrong.into_iter().partition(|one| one.starts_with("error[IM0732]"));
    assert!(!outages.is_empty(), "{reported:#}");
    let [disconnected, denied] = others[..] else { panic!("{reported:#}") };
    assert!(
        disconnected.starts_with("1 proxy is disconnected\n")
            && disconnected.contains("proxy revoke"),
        "{reported:#}"
    );
    assert!(disconnected.contains(" at 127.1.0.1:15003: receives no calls"), "{reported:#}");
    assert!(denied.contains("`office/clerk`"), "{reported:#}");
}

/// More pairs of accounts and ports of one service than the control plane keeps.
const ACCOUNTS: usize = 100;
const PORTS: usize = 100;

/// A proxy's nth false message: calls of all existing accounts on one port after the other, and of
/// as many unknown ones.
fn false_calls(proxy: &ProxyClient, nth: usize) -> StreamAccessLogsMessage {
    let cluster = format!("default/till|{}|local", 1000 + nth % PORTS);
    let names = (0..ACCOUNTS).flat_map(|n| [format!("caller-{n}"), format!("nobody-{nth}-{n}")]);
    let uris = names.map(|name| format!("spiffe://mesh.internal/ns/default/sa/{name}"));
    message(proxy, uris.map(|uri| call(&cluster, &uri, &format!("/{nth}"))).collect())
}

/// A83, A84 (bystander). One proxy reports all that it may and more, without pause; meanwhile
/// another reports one call.
#[tokio::test(flavor = "multi_thread")]
async fn endless_false_access_logs_hide_no_denials_of_others() {
    let Some(server) = Server::open("mode = \"audit\"") else { return };
    let port = |n| format!("{{ name = \"p{n}\", port = {}, protocol = \"http\" }}", 1000 + n);
    let ports: Vec<_> = (0..PORTS).map(port).collect();
    let till = format!("[[service]]\nname = \"till\"\nports = [{}]\n", ports.join(", "));
    let store = "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";
    let callers: Vec<_> =
        (0..ACCOUNTS).map(|n| format!("[[service]]\nname = \"caller-{n}\"\n")).collect();
    server.workspace.write("policy/services.toml", &(till + store + &callers.concat()));
    let _child = server.start().await;
    server.ready().await;
    let xds = server.loopback.socket(1, 15128);
    let join = async |service: &str, address: &str| {
        let service = ["--service", service, "--address", address, "--out", service];
        let run = server.run(&[&["proxy", "bootstrap"], &service[..]].concat());
        assert_eq!(run.code, 0, "{run:?}");
        ProxyClient::connect(&server.workspace.path().join(service[1]), xds).await.unwrap()
    };
    let (hostile, honest) = (join("till", "127.1.0.1").await, join("store", "127.1.0.2").await);
    let mut client = AccessLogServiceClient::new(hostile.channel().clone());
    let endless = tokio_stream::iter((0..).map(move |nth| false_calls(&hostile, nth)));
    let telling = tokio::spawn(async move { client.stream_access_logs(endless).await });

    let admin = server.loopback.socket(1, 15014);
    let metric = |caller: &str, service: &str| {
        format!("ironmesh_audit_would_deny_total{{caller=\"{caller}\",service=\"default/{service}|")
    };
    let metrics = async |what: &str, line: &str| {
        eventually(what, async || {
            let text = get_once(admin, "/metrics", &[]).await.unwrap().text();
            if text.contains(line) { Ok(text) } else { Err(format!("{} bytes", text.len())) }
        })
        .await
    };
    let text = metrics("a time when there is no room", &metric("others", "till")).await;
    assert!(!text.contains("nobody-"), "unknown callers are listed");

    let caller = "spiffe://mesh.internal/ns/default/sa/caller-1";
    let calls = vec![call("default/store|80|local", caller, "/books")];
    let mut client = AccessLogServiceClient::new(honest.channel().clone());
    client.stream_access_logs(tokio_stream::once(message(&honest, calls))).await.unwrap();
    let counted = metric("default/caller-1", "store") + "80\"} 1\n";
    metrics("the honest proxy's call", &counted).await;
    let view = get_once(admin, "/v1/audit", &[]).await.unwrap().json();
    let denied = view["denied"].as_array().unwrap();
    let of_store: Vec<_> = denied.iter().filter(|one| one["service"] == "default/store").collect();
    let [named] = &of_store[..] else { panic!("{of_store:#?} of {}", denied.len()) };
    assert_eq!((&named["caller"], &named["count"]), (&"default/caller-1".into(), &1.into()));
    assert_eq!(named["requests"][0]["example"], "/books");
    let others = view["others"].as_array().unwrap();
    assert!(others.iter().all(|one| one["service"] == "default/till"), "{others:#?}");
    // Its other requests are answered as before.
    honest.service_certificate("default/store").await.unwrap();
    assert!(!telling.is_finished(), "{:?}", telling.await);
    telling.abort();
}
