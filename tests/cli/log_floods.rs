//! Floods of one proxy in the log of the control plane.

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::eventually::patience;
use ironmesh_tests::process::Child;
use ironmesh_tests::xds::ProxyClient;
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::config::core::v3::Node;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::DeltaDiscoveryRequest;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use serde_json::Value;
use tokio::process::Command;
use tokio::sync::mpsc;
use tokio::time::timeout;
use tokio_stream::wrappers::ReceiverStream;

use crate::server::Server;

const POLICY: &str =
    "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

/// How often a proxy connects.
const STREAMS: u64 = 40;

/// Opens a stream, and ends it after the first answer.
async fn connect_once(proxy: &ProxyClient) {
    let (requests, outgoing) = mpsc::channel(1);
    let request = DeltaDiscoveryRequest {
        node: Some(Node { id: proxy.node_id.clone(), ..Node::default() }),
        type_url: ResourceType::Secret.url().to_owned(),
        resource_names_subscribe: vec!["roots".to_owned()],
        ..DeltaDiscoveryRequest::default()
    };
    requests.send(request).await.unwrap();
    let mut client = AggregatedDiscoveryServiceClient::new(proxy.channel().clone());
    let answered = client.delta_aggregated_resources(ReceiverStream::new(outgoing)).await.unwrap();
    let mut answers = answered.into_inner();
    timeout(patience(), answers.message()).await.unwrap().unwrap().unwrap();
    drop(requests);
    // The end of the requests is the end of the stream.
    timeout(patience(), async { while let Ok(Some(_)) = answers.message().await {} })
        .await
        .unwrap();
}

#[tokio::test(flavor = "multi_thread")]
async fn reconnects_of_one_proxy_are_one_line_with_a_count() {
    let Some(server) = Server::open("log.format = \"json\"\n") else { return };
    server.workspace.write("policy/a.toml", POLICY);
    let command = server.workspace.command(&["serve", "--config", "ironmesh.toml"]);
    let log = server.workspace.path().join("serve.log");
    let mut child = Child::start("ironmesh serve", &mut Command::from(command), &log);
    eventually("an answer", async || match server.run(&["log", "level"]) {
        run if run.code == 0 => Ok(()),
        run => Err(format!("{run:?}")),
    })
    .await;
    server.ready().await;
    for name in ["store-1", "store-2"] {
        let arguments = ["--service", "store", "--address", "127.0.0.1", "--name", name];
        let run = server.run(&[&["proxy", "bootstrap", "--out", name], &arguments[..]].concat());
        assert_eq!(run.code, 0, "{run:?}");
    }
    let xds = server.loopback.socket(1, 15128);
    let connect = async |name: &str| {
        ProxyClient::connect(&server.workspace.path().join(name), xds).await.unwrap()
    };
    let (flooding, other) = (connect("store-1").await, connect("store-2").await);
    for _ in 0..STREAMS {
        connect_once(&flooding).await;
    }
    connect_once(&other).await;

    let lines = || -> Vec<Value> {
        let text = fs::read_to_string(&log).unwrap();
        let whole = &text[..text.rfind('\n').map_or(0, |end| end + 1)];
        whole.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
    };
    // On a slow machine the flood takes several periods: each line stands for itself or for a count.
    let opened = |client: &str| -> (usize, u64) {
        let (mut written, mut all) = (0, 0);
        for line in lines() {
            let fields = &line["fields"];
            if fields["client"] != client {
                continue;
            }
            if fields["message"] == "xDS stream opened" {
                (written, all) = (written + 1, all + 1);
            } else if fields["event"] == "xDS stream opened" {
                assert_eq!(fields["message"], "a line was repeated");
                (written, all) = (written + 1, all + fields["count"].as_u64().unwrap());
            }
        }
        (written, all)
    };
    let written = eventually("the count of all streams", async || {
        let (written, all) = opened(&flooding.node_id);
        if all == STREAMS { Ok(written) } else { Err(format!("{all}")) }
    })
    .await;
    let most = usize::try_from(STREAMS).unwrap() / 2;
    assert!((2..most).contains(&written), "{written} lines for {STREAMS} streams");
    assert_eq!(opened(&other.node_id), (1, 1), "another proxy is not affected");
    // The end of the process writes the count of a period that is not over.
    for _ in 0..3 {
        connect_once(&other).await;
    }
    assert!(child.terminate().await.success());
    assert_eq!(opened(&other.node_id).1, 4);
}
