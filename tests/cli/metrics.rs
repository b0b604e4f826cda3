//! `/metrics` has the documented families, and their values change with what they count.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::path::Path;

use fs_err as fs;
use ironmesh_tests::eventually::patience;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{eventually, get_once};
use ironmesh_xds_server::{CloseReason, ConnectionRejection};
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use ironmesh_xds_wire::pb::google::rpc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Code;

use crate::server::Server;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]

[[service]]
name = "till"
ports = [{ port = 81, protocol = "http" }]
[service.endpoints]
static = [{ address = "10.0.0.9" }]
"#;

/// The families with their types and the names of their labels, in order.
const FAMILIES: [(&str, &str, &str); 48] = [
    ("ironmesh_api_connections_lost", "counter", "reason"),
    ("ironmesh_audit_would_deny", "counter", "caller service"),
    ("ironmesh_certificate_expiry_timestamp_seconds", "gauge", "kind"),
    ("ironmesh_certificates", "gauge", "kind state"),
    ("ironmesh_convergence_seconds", "histogram", "change"),
    ("ironmesh_endpoints_held_seconds", "gauge", "provider"),
    ("ironmesh_endpoints_services", "gauge", "provider"),
    ("ironmesh_endpoints_services_flapping", "gauge", "provider"),
    ("ironmesh_endpoints_services_held", "gauge", "provider"),
    ("ironmesh_endpoints_services_stale", "gauge", "provider"),
    ("ironmesh_enrollment_connections_lost", "counter", "reason"),
    ("ironmesh_enrollment_requests", "counter", "reason"),
    ("ironmesh_findings", "gauge", "code severity silenced"),
    ("ironmesh_health_reports", "counter", "reason"),
    ("ironmesh_journal_dropped", "counter", ""),
    ("ironmesh_journal_pending", "gauge", ""),
    ("ironmesh_mesh_findings", "gauge", ""),
    ("ironmesh_mesh_requests", "counter", "caller class service"),
    ("ironmesh_policy_stale", "gauge", ""),
    ("ironmesh_provider_answer_age_seconds", "gauge", "provider"),
    ("ironmesh_provider_stale", "gauge", "provider"),
    ("ironmesh_proxies_below_minimum", "gauge", "component"),
    ("ironmesh_proxies_connected", "gauge", ""),
    ("ironmesh_proxies_cordoned", "gauge", "mode"),
    ("ironmesh_proxies_cordoned_seconds", "gauge", "mode"),
    ("ironmesh_proxies_enrolled", "gauge", ""),
    ("ironmesh_proxies_sync", "gauge", "state"),
    ("ironmesh_proxy_findings", "gauge", ""),
    ("ironmesh_proxy_versions", "gauge", "component version"),
    ("ironmesh_ready", "gauge", ""),
    ("ironmesh_resources_nacked", "gauge", ""),
    ("ironmesh_resources_withheld", "gauge", ""),
    ("ironmesh_store_outage_seconds", "gauge", "store"),
    ("ironmesh_trace_spans", "counter", "outcome"),
    ("ironmesh_xds_acks", "counter", "type"),
    ("ironmesh_xds_connections_rejected", "counter", "reason"),
    ("ironmesh_xds_late_answers", "counter", "type"),
    ("ironmesh_xds_nacks", "counter", "type"),
    ("ironmesh_xds_pushes", "counter", "type"),
    ("ironmesh_xds_sets", "counter", ""),
    ("ironmesh_xds_streams", "gauge", ""),
    ("ironmesh_xds_streams_closed", "counter", "reason"),
    ("process_cpu_seconds", "counter", ""),
    ("process_max_fds", "gauge", ""),
    ("process_open_fds", "gauge", ""),
    ("process_resident_memory_bytes", "gauge", ""),
    ("process_start_time_seconds", "gauge", ""),
    ("process_threads", "gauge", ""),
];

/// The samples of `/metrics` by name and labels.
async fn samples(admin: SocketAddr) -> BTreeMap<String, u64> {
    let answer = get_once(admin, "/metrics", &[]).await.unwrap();
    assert_eq!(answer.status, 200);
    let kind = "application/openmetrics-text; version=1.0.0; charset=utf-8";
    assert_eq!(answer.header("content-type"), Some(kind));
    let text = answer.text();
    assert!(text.ends_with("# EOF\n"), "{text}");
    let lines = text.lines().filter(|line| !line.starts_with('#'));
    let samples = lines.map(|line| line.rsplit_once(' ').unwrap());
    // Durations are fractions.
    let samples = samples.filter_map(|(name, number)| Some((name, number.parse().ok()?)));
    samples.map(|(name, number)| (name.to_owned(), number)).collect()
}

/// Waits until a sample has the value `wanted`.
async fn wait_for_sample(admin: SocketAddr, sample: &str, wanted: u64) {
    eventually(&format!("{sample} {wanted}"), async || {
        let samples = samples(admin).await;
        if samples.get(sample) == Some(&wanted) { Ok(()) } else { Err(format!("{samples:#?}")) }
    })
    .await;
}

/// What lines with this prefix have about each family.
fn described(text: &str, prefix: &str) -> BTreeMap<String, String> {
    let lines = text.lines().filter_map(|line| line.strip_prefix(prefix));
    let split = lines.map(|line| line.split_once(' ').unwrap());
    split.map(|(name, words)| (name.to_owned(), words.to_owned())).collect()
}

/// Compares the families, with what the exposition has to say about them, and their reference page.
fn assert_page_describes(help: &BTreeMap<String, String>) {
    let page = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/metrics.md");
    let page = fs::read_to_string(page).unwrap();
    let is_family =
        |line: &&str| line.starts_with("| `ironmesh_") || line.starts_with("| `process_");
    let rows: BTreeSet<_> = page.lines().filter(is_family).map(str::to_owned).collect();
    let described = FAMILIES.map(|(name, kind, labels)| {
        let labels = labels.split_whitespace().map(|label| format!("`{label}`"));
        let labels: Vec<_> = labels.collect();
        let labels = if labels.is_empty() { "–".to_owned() } else { labels.join(", ") };
        format!("| `{name}` | {kind} | {labels} | {} |", help[name])
    });
    assert_eq!(rows, described.into());
}

#[tokio::test(flavor = "multi_thread")]
async fn every_metric_family_has_help_type_and_all_labels() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    let admin = server.loopback.socket(1, 15014);
    let text = get_once(admin, "/metrics", &[]).await.unwrap().text();
    let types = FAMILIES.map(|(name, kind, _)| (name.to_owned(), kind.to_owned())).into();
    assert_eq!(described(&text, "# TYPE "), types);
    let help = described(&text, "# HELP ");
    assert_eq!(help.keys().collect::<Vec<_>>(), FAMILIES.map(|(name, ..)| name));
    assert!(help.values().all(|words| words.len() > 10), "{help:#?}");
    for sample in text.lines().filter(|line| !line.starts_with('#')) {
        let (name, rest) = sample.split_once(['{', ' ']).unwrap();
        let has_suffix = |family: &str| {
            let suffix = name.strip_prefix(family);
            suffix.is_some_and(|end| ["", "_total", "_sum", "_count", "_bucket"].contains(&end))
        };
        let family = FAMILIES.into_iter().find(|(family, ..)| has_suffix(family));
        let (_, _, labels) = family.unwrap_or_else(|| panic!("{sample}"));
        let keys = rest.split(',').filter_map(|pair| pair.split_once("=\""));
        let mut keys: Vec<_> = keys.map(|(key, _)| key).filter(|key| *key != "le").collect();
        keys.sort_unstable();
        assert_eq!(keys.join(" "), labels, "{sample}");
    }
    assert_page_describes(&help);

    let samples = samples(admin).await;
    let labelled = |family: &str, label: &str, words: Vec<String>| {
        let of = |word: String| format!("{family}_total{{{label}=\"{word}\"}}");
        let wanted: Vec<_> = words.into_iter().map(of).collect();
        let of_family = |name: &&String| name.starts_with(&format!("{family}_total{{"));
        assert_eq!(samples.keys().filter(of_family).count(), wanted.len(), "{samples:#?}");
        assert!(wanted.iter().all(|name| samples[name] == 0), "{samples:#?}");
    };
    let types = ResourceType::ALL.map(|one| one.to_string().replace(' ', "_"));
    for family in ["pushes", "acks", "nacks", "late_answers"] {
        labelled(&format!("ironmesh_xds_{family}"), "type", types.clone().into());
    }
    let turned = ConnectionRejection::ALL.map(|why| why.word().to_owned());
    labelled("ironmesh_xds_connections_rejected", "reason", turned.into());
    let closed = CloseReason::ALL.map(|why| why.word().to_owned());
    labelled("ironmesh_xds_streams_closed", "reason", closed.into());
    // No service of this policy uses a provider.
    assert_eq!(samples["ironmesh_provider_stale{provider=\"consul\"}"], 0);
    assert_eq!(samples["ironmesh_provider_stale{provider=\"azure\"}"], 0);
}

#[tokio::test(flavor = "multi_thread")]
async fn events_update_their_own_metrics() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    let (admin, xds) = (server.loopback.socket(1, 15014), server.loopback.socket(1, 15128));
    let now = async |name: &str| samples(admin).await[name];
    let gauges =
        [("ironmesh_ready", 1), ("ironmesh_proxies_enrolled", 0), ("ironmesh_policy_stale", 0)];
    for (name, value) in gauges {
        assert_eq!(now(name).await, value, "{name}");
    }
    wait_for_sample(admin, "ironmesh_mesh_findings", 1).await;

    let run = server.run(&[
        "proxy",
        "bootstrap",
        "--service",
        "store",
        "--address",
        "127.0.0.1",
        "--out",
        "one",
    ]);
    assert_eq!(run.code, 0, "{run:?}");
    assert_eq!(now("ironmesh_proxies_enrolled").await, 1);

    // A connection without TLS.
    let mut garbage = TcpStream::connect(xds).await.unwrap();
    garbage.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
    let _ = timeout(patience(), garbage.read_to_end(&mut Vec::new())).await.expect("an end");
    wait_for_sample(admin, "ironmesh_xds_connections_rejected_total{reason=\"bad_handshake\"}", 1)
        .await;

    // A stream with the node id of another proxy.
    let one = ProxyClient::connect(&server.workspace.path().join("one"), xds).await.unwrap();
    let other = Node { id: uuid::Uuid::nil().to_string(), ..Node::default() };
    let rejected = one.request_secret(other, "roots").await.unwrap_err();
    assert_eq!(rejected.code(), Code::PermissionDenied, "{rejected}");
    wait_for_sample(admin, "ironmesh_xds_streams_closed_total{reason=\"rejected\"}", 1).await;
    assert_eq!(now("ironmesh_xds_streams").await, 0);

    // A stream that ACKs clusters and NACKs a secret.
    let (requests, outgoing) = mpsc::channel(8);
    let ask = |of: ResourceType, names: &[&str]| DeltaDiscoveryRequest {
        node: Some(Node { id: one.node_id.clone(), ..Node::default() }),
        type_url: of.url().to_owned(),
        resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(ask(ResourceType::Cluster, &[])).await.unwrap();
    let mut client = AggregatedDiscoveryServiceClient::new(one.channel().clone());
    let stream = client.delta_aggregated_resources(ReceiverStream::new(outgoing));
    let mut stream = timeout(patience(), stream).await.unwrap().unwrap().into_inner();
    let mut next = async || timeout(patience(), stream.message()).await.expect("a push");
    let answer = |nonce: String, type_url: String, error: Option<&str>| {
        let words =
            |message: &str| rpc::Status { code: 13, message: message.to_owned(), details: vec![] };
        DeltaDiscoveryRequest {
            type_url,
            response_nonce: nonce,
            error_detail: error.map(words),
            ..DeltaDiscoveryRequest::default()
        }
    };
    let push = next().await.unwrap().unwrap();
    wait_for_sample(admin, "ironmesh_xds_pushes_total{type=\"cluster\"}", 1).await;
    assert_eq!(now("ironmesh_xds_acks_total{type=\"cluster\"}").await, 0);
    requests.send(answer(push.nonce, push.type_url, None)).await.unwrap();
    wait_for_sample(admin, "ironmesh_xds_acks_total{type=\"cluster\"}", 1).await;
    assert_eq!(now("ironmesh_proxies_connected").await, 1);
    assert_eq!(now("ironmesh_xds_streams").await, 1);
    assert!(now("ironmesh_xds_sets_total").await > 0);

    requests.send(ask(ResourceType::Secret, &["service-cert:default/store"])).await.unwrap();
    let push = next().await.unwrap().unwrap();
    assert_eq!(now("ironmesh_xds_nacks_total{type=\"secret\"}").await, 0);
    requests.send(answer(push.nonce, push.type_url, Some("no"))).await.unwrap();
    wait_for_sample(admin, "ironmesh_xds_nacks_total{type=\"secret\"}", 1).await;
    wait_for_sample(admin, "ironmesh_resources_nacked", 1).await;

    // A rejected policy.
    server.workspace.write("policy/more.toml", "[[serivce]]\n");
    wait_for_sample(admin, "ironmesh_policy_stale", 1).await;

    // A stream that a revocation ends.
    let run = server.run(&["proxy", "revoke", &one.node_id]);
    assert_eq!(run.code, 0, "{run:?}");
    let end = loop {
        match next().await {
            Ok(push) => drop(push.expect("an end with a reason")),
            Err(end) => break end,
        }
    };
    assert_eq!(end.code(), Code::PermissionDenied, "{end}");
    wait_for_sample(admin, "ironmesh_xds_streams_closed_total{reason=\"disconnected\"}", 1).await;
    wait_for_sample(admin, "ironmesh_xds_streams", 0).await;
    wait_for_sample(admin, "ironmesh_resources_nacked", 0).await;
    assert_eq!(now("ironmesh_proxies_enrolled").await, 0);
}
