//! What one control plane notes of its proxies has the same effect at the other: NACKs, denied calls, and the acceptance of
//! an endpoint removal.

use std::collections::HashMap;

use ironmesh_tests::azure::{GROUP, Machine, SUBSCRIPTION, ScaleSet};
use ironmesh_tests::eventually::patience;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{FakeAzure, ProxyOptions, eventually};
use ironmesh_xds_wire::ResourceType;
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
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use serde_json::Value;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Streaming;

use crate::replicas::{POLICY, Replicas};

const CLUSTER: &str = "default/store|80";

/// A delta stream for one cluster.
struct ClusterStream {
    requests: mpsc::Sender<DeltaDiscoveryRequest>,
    responses: Streaming<DeltaDiscoveryResponse>,
}

impl ClusterStream {
    /// Subscribes to [`CLUSTER`] and to `other`, with a version of the first that the client has.
    async fn open(client: &ProxyClient, other: &str, has: Option<&str>) -> Self {
        let (requests, receiver) = mpsc::channel(2);
        let has = has.map(|version| (CLUSTER.to_owned(), version.to_owned()));
        let subscribe = DeltaDiscoveryRequest {
            node: Some(Node { id: client.node_id.clone(), ..Node::default() }),
            type_url: ResourceType::Cluster.url().to_owned(),
            resource_names_subscribe: vec![CLUSTER.to_owned(), other.to_owned()],
            initial_resource_versions: has.into_iter().collect::<HashMap<_, _>>(),
            ..DeltaDiscoveryRequest::default()
        };
        requests.try_send(subscribe).unwrap();
        let mut xds = AggregatedDiscoveryServiceClient::new(client.channel().clone());
        let responses = xds.delta_aggregated_resources(ReceiverStream::new(receiver));
        let responses = responses.await.unwrap().into_inner();
        Self { requests, responses }
    }

    async fn next(&mut self) -> DeltaDiscoveryResponse {
        let next = tokio::time::timeout(patience(), self.responses.message());
        // A response in time, no status, and no end of the stream.
        next.await.unwrap().unwrap().unwrap()
    }

    /// NACKs a response.
    fn nack(&self, response: DeltaDiscoveryResponse, message: &str) {
        let error = ironmesh_xds_wire::pb::google::rpc::Status {
            code: tonic::Code::InvalidArgument.into(),
            message: message.to_owned(),
            details: Vec::new(),
        };
        let nack = DeltaDiscoveryRequest {
            type_url: response.type_url,
            response_nonce: response.nonce,
            error_detail: Some(error),
            ..DeltaDiscoveryRequest::default()
        };
        self.requests.try_send(nack).unwrap();
    }
}

/// The message of an access log with one denied request of the store by the buyer.
fn denied_request(store: &ProxyClient) -> StreamAccessLogsMessage {
    let uri = "spiffe://mesh.internal/ns/default/sa/visitor".to_owned();
    let name = SubjectAltName { san: Some(San::Uri(uri)) };
    let certificate =
        CertificateProperties { subject_alt_name: vec![name], ..CertificateProperties::default() };
    let call = HttpAccessLogEntry {
        common_properties: Some(AccessLogCommon {
            upstream_cluster: "default/store|80|local".to_owned(),
            tls_properties: Some(TlsProperties {
                peer_certificate_properties: Some(certificate),
                ..TlsProperties::default()
            }),
            ..AccessLogCommon::default()
        }),
        request: Some(HttpRequestProperties {
            path: "/secret".to_owned(),
            ..HttpRequestProperties::default()
        }),
        ..HttpAccessLogEntry::default()
    };
    let node = Node { id: store.node_id.clone(), ..Node::default() };
    StreamAccessLogsMessage {
        identifier: Some(Identifier { node: Some(node), log_name: String::new() }),
        log_entries: Some(LogEntries::HttpLogs(HttpAccessLogEntries { log_entry: vec![call] })),
    }
}

/// Waits until both control planes show this at an address of the admin API.
async fn wait_for_both(
    replicas: &Replicas,
    what: &str,
    path: &str,
    is_it: impl Fn(&Value) -> bool,
) {
    for mesh in &replicas.all {
        eventually(what, async || {
            let view = mesh.admin_get(path).await;
            anyhow::ensure!(is_it(&view), "{view:#}");
            Ok(())
        })
        .await;
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn nacks_and_denied_calls_at_one_control_plane_count_at_the_other() {
    let policy = format!("{POLICY}\n[[service]]\nname = \"visitor\"\n");
    let settings = "mode = \"audit\"\n";
    let replicas =
        Replicas::with_settings(2, settings, &policy, |addresses, _| addresses.to_vec()).await;
    let Some(replicas) = replicas else { return };
    let [first, second] = [&replicas.all[0], &replicas.all[1]];
    let options = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
    let folder = first.bootstrap(&options).await;

    let client = ProxyClient::connect(&folder, second.xds()).await.unwrap();
    let mut stream = ClusterStream::open(&client, CLUSTER, None).await;
    let response = stream.next().await;
    assert_eq!(response.resources.len(), 1, "{response:?}");
    stream.nack(response, "no such thing");
    let nacks = |buyer: &Value, streams: u64| {
        let is_shown = buyer["nacks"][0]["message"] == "no such thing";
        is_shown && buyer["streams"] == streams && buyer["sync"]["state"] == "nacked"
    };
    eventually("the NACK to be known to the other control plane", async || {
        let proxies = first.proxies().await;
        anyhow::ensure!(nacks(&proxies[0], 0), "{proxies:#}");
        Ok(())
    })
    .await;
    let arguments = ["policy", "wait", "--timeout", "1s", "--output", "json"];
    let output = first.run(&arguments).await;
    let waited: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(waited["proxies"][0]["nacks"][0]["message"], "no such thing", "{waited:#}");

    // It moves to the other control plane, which does not send the cluster again.
    drop((stream, client));
    let client = ProxyClient::connect(&folder, first.xds()).await.unwrap();
    let mut stream = ClusterStream::open(&client, "default/none|1", Some("0")).await;
    loop {
        let response = stream.next().await;
        assert!(response.resources.is_empty(), "{response:?}");
        if response.removed_resources.iter().any(|name| name == "default/none|1") {
            break;
        }
    }
    let proxies = first.proxies().await;
    assert!(nacks(&proxies[0], 1), "{proxies:#}");

    // Calls that strict mode would deny, which both report.
    let store = replicas.enroll(0, "default/store", 21).await;
    for mesh in [first, second] {
        let client = eventually("the enrollment to be known", async || {
            ProxyClient::connect(&store, mesh.xds()).await
        })
        .await;
        eventually("the calls to be reported", async || {
            let mut calls = AccessLogServiceClient::new(client.channel().clone());
            calls.stream_access_logs(tokio_stream::once(denied_request(&client))).await
        })
        .await;
    }
    // A call that was repeated may count twice.
    wait_for_both(&replicas, "the sum of the denied calls", "/v1/audit", |view| {
        let denied = &view["denied"][0];
        let count = denied["requests"][0]["count"].as_u64();
        denied["caller"] == "default/visitor" && count >= Some(2)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn endpoint_removal_accepted_at_one_control_plane_holds_at_both() {
    const WEB: &str = "[[service]]\nname = \"web\"\nports = [{ port = 80, protocol = \"http\" }]\n\
                       endpoints = { azure_scale_set = { name = \"web\" } }\n";
    let azure = FakeAzure::start().await;
    azure.change(|vms| {
        vms.scale_sets.entry("web".to_owned()).or_insert_with(ScaleSet::default);
        let machine =
            |number: u8| Machine::of("web", &number.to_string(), &format!("10.0.0.{number}"));
        vms.machines.extend((1..=4).map(machine));
    });
    let settings = format!(
        "endpoints.grace = \"1d\"\n\
         azure.subscription = \"{SUBSCRIPTION}\"\nazure.resource_group = \"{GROUP}\"\n\
         azure.interval = \"1s\"\nazure.reads_per_hour = 12000\n\
         azure.cloud = {{ resource_manager = \"{}\", login = \"{}\", metadata = \"{}\" }}\n",
        azure.manager(),
        azure.login(),
        azure.metadata(),
    );
    let replicas =
        Replicas::with_settings(2, &settings, WEB, |addresses, _| addresses.to_vec()).await;
    let Some(replicas) = replicas else { return };
    let path = "/v1/endpoints/default/web";
    let count = |view: &Value| view["services"][0]["endpoints"].as_array().map(Vec::len);
    wait_for_both(&replicas, "four endpoints", path, |view| count(view) == Some(4)).await;
    azure.change(|vms| vms.machines.truncate(1));
    let is_held = |view: &Value| view["services"][0].to_string().contains("\"left\":1");
    wait_for_both(&replicas, "the removal to be held back", path, is_held).await;
    let output = replicas.all[1].run(&["endpoints", "accept", "default/web"]).await;
    assert!(output.status.success(), "{output:?}");
    wait_for_both(&replicas, "one endpoint", path, |view| count(view) == Some(1)).await;
}
