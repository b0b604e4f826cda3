//! The alerts about proxies, with clients in place of Envoys.

use ironmesh_tests::eventually::patience;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use ironmesh_xds_wire::pb::google::rpc;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::{mpsc, watch};
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::task::AbortOnDropHandle;

use super::Alarms;
use crate::server::Server;

pub(super) const ALERTS: [&str; 6] = [
    "HandshakesFail",
    "ProxiesDisconnected",
    "ProxiesNotAcking",
    "ProxyFindings",
    "ResourcesNacked",
    "ResourcesWithheld",
];

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
"#;

/// The secret that all proxies of the service get alike.
const SECRET: &str = "service-cert:default/store";

/// How a proxy answers responses.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Answers {
    /// Not at all: it answers them later.
    None,
    Acks,
    /// It NACKs secrets, and ACKs all others.
    NacksSecrets,
}

/// The stream of a proxy that subscribes to clusters, listeners and a secret. Dropping this value ends it.
struct ProxyStream {
    answers: watch::Sender<Answers>,
    _task: AbortOnDropHandle<()>,
}

impl ProxyStream {
    /// Connects as an enrolled proxy.
    async fn connect(server: &Server, name: &str, answers: Answers) -> Self {
        let (folder, xds) = (server.workspace.path().join(name), server.loopback.socket(1, 15128));
        let client = ProxyClient::connect(&folder, xds).await.unwrap();
        let answers = watch::Sender::new(answers);
        let task = tokio::spawn(answer_all(client, answers.subscribe()));
        Self { answers, _task: AbortOnDropHandle::new(task) }
    }
}

/// Answers each response as `answers` says, until the stream ends.
async fn answer_all(client: ProxyClient, mut answers: watch::Receiver<Answers>) {
    let (requests, outgoing) = mpsc::channel(8);
    let node = Node { id: client.node_id.clone(), ..Node::default() };
    let all: [(ResourceType, &[&str]); 3] = [
        (ResourceType::Cluster, &[]),
        (ResourceType::Listener, &[]),
        (ResourceType::Secret, &[SECRET]),
    ];
    for (of, names) in all {
        let subscription = DeltaDiscoveryRequest {
            node: Some(node.clone()),
            type_url: of.url().to_owned(),
            resource_names_subscribe: names.iter().map(|name| (*name).to_owned()).collect(),
            ..DeltaDiscoveryRequest::default()
        };
        requests.send(subscription).await.unwrap();
    }
    let mut service = AggregatedDiscoveryServiceClient::new(client.channel().clone());
    let stream = service.delta_aggregated_resources(ReceiverStream::new(outgoing));
    let Ok(responses) = stream.await else { return };
    let mut responses = responses.into_inner();
    while let Ok(Some(response)) = responses.message().await {
        let next = answers.wait_for(|answers| *answers != Answers::None).await;
        let Ok(next) = next.map(|answers| *answers) else { return };
        let is_secret = response.type_url == ResourceType::Secret.url();
        let is_nack = is_secret && next == Answers::NacksSecrets;
        let status =
            rpc::Status { code: 13, message: "unusable".to_owned(), ..rpc::Status::default() };
        let answer = DeltaDiscoveryRequest {
            type_url: response.type_url,
            response_nonce: response.nonce,
            error_detail: is_nack.then_some(status),
            ..DeltaDiscoveryRequest::default()
        };
        if requests.send(answer).await.is_err() {
            return;
        }
    }
}

/// Enrolls a proxy with this address.
fn enroll(server: &Server, name: &str, address: &str) {
    let enroll = ["proxy", "bootstrap", "--service", "store", "--out", name, "--address"];
    let run = server.run(&[&enroll[..], &[address, "--name", name]].concat());
    assert_eq!(run.code, 0, "{run:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn alerts_about_proxies_fire_and_clear() {
    let Some(server) = Server::open("") else { return };
    let policy = |text: &str| server.workspace.write("policy/services.toml", text);
    policy(POLICY);
    let _child = server.start().await;
    server.ready().await;
    let Some(mut alarms) = Alarms::start(&server).await else { return };
    for (number, name) in (1..).zip(["one", "two", "three", "four"]) {
        enroll(&server, name, &format!("127.1.0.{number}"));
    }

    let one = ProxyStream::connect(&server, "one", Answers::None).await;
    alarms.fires("ProxiesNotAcking").await;
    one.answers.send_replace(Answers::NacksSecrets);
    alarms.fires("ResourcesNacked").await;
    alarms.clears("ProxiesNotAcking").await;
    // Three NACKs keep the version from the next proxy.
    let two = ProxyStream::connect(&server, "two", Answers::NacksSecrets).await;
    let three = ProxyStream::connect(&server, "three", Answers::NacksSecrets).await;
    alarms.prometheus.wait_for_sample("ironmesh_resources_nacked == 3").await;
    let four = ProxyStream::connect(&server, "four", Answers::Acks).await;
    alarms.fires("ResourcesWithheld").await;
    let run = server.run(&["proxy", "revoke", "one", "two", "three"]);
    assert_eq!(run.code, 0, "{run:?}");
    drop((one, two, three));
    alarms.clears("ResourcesNacked").await;
    alarms.clears("ResourcesWithheld").await;

    drop(four);
    alarms.fires("ProxiesDisconnected").await;
    let _four = ProxyStream::connect(&server, "four", Answers::Acks).await;
    alarms.clears("ProxiesDisconnected").await;

    // Policy drops the service of a connected proxy.
    policy("[[service]]\nname = \"other\"\n");
    alarms.fires("ProxyFindings").await;
    policy(POLICY);
    alarms.clears("ProxyFindings").await;

    // Clients without TLS.
    let xds = server.loopback.socket(1, 15128);
    alarms
        .fires_by("HandshakesFail", async || {
            let mut client = TcpStream::connect(xds).await.unwrap();
            client.write_all(b"GET / HTTP/1.1\r\n\r\n").await.unwrap();
            let mut answer = Vec::new();
            let end = timeout(patience(), client.read_to_end(&mut answer)).await;
            let _ = end.expect("an end");
        })
        .await;
    alarms.clears("HandshakesFail").await;
    alarms.assert_observed(&ALERTS);
}
