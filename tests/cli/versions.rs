//! `ironmesh proxy versions`: the versions of the fleet, also of proxies that are rejected or away.

use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{eventually, get_once};
use ironmesh_xds_wire::pb::envoy::config::core::v3::{BuildVersion, Node, node};
use ironmesh_xds_wire::pb::envoy::r#type::v3::SemanticVersion;
use serde_json::json;
use tonic::Code;

use crate::server::Server;

const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
"#;

/// The node of an Envoy 1.`minor`.2.
pub(crate) fn envoy(id: &str, minor: u32) -> Node {
    let version = Some(SemanticVersion { major_number: 1, minor_number: minor, patch: 2 });
    let build = BuildVersion { version, ..BuildVersion::default() };
    Node {
        id: id.to_owned(),
        user_agent_name: "envoy".to_owned(),
        user_agent_version_type: Some(node::UserAgentVersionType::UserAgentBuildVersion(build)),
        ..Node::default()
    }
}

#[tokio::test]
async fn versions_of_all_proxies_are_counted_and_old_ones_named() {
    let Some(server) = Server::open("") else { return };
    server.workspace.write("policy/services.toml", POLICY);
    let mut child = server.start().await;
    server.ready().await;
    let arguments = ["proxy", "bootstrap", "--service", "store", "--address", "127.1.0.1"];
    let run = server.run(&[&arguments[..], &["--count", "3", "--out", "proxies"]].concat());
    assert_eq!(run.code, 0, "{run:?}");
    let unknown = json!([{ "version": null, "count": 3, "below_minimum": false }]);
    let report = server.json(&["proxy", "versions"]);
    assert_eq!((&report["envoy"]["versions"], &report["without_agent"]), (&unknown, &json!(3)));
    assert_eq!(report["agent"]["versions"], json!([]));

    let xds = server.loopback.socket(1, 15128);
    let connect = async |folder: &str, minor: u32| {
        let folder = server.workspace.path().join("proxies").join(folder);
        let proxy = ProxyClient::connect(&folder, xds).await.unwrap();
        let node = envoy(&proxy.node_id, minor);
        proxy.request_secret(node, "roots").await
    };
    connect("0001", 40).await.unwrap();
    let rejected = connect("0002", 20).await.unwrap_err();
    assert_eq!(rejected.code(), Code::PermissionDenied, "{rejected}");
    let counts = json!([
        { "version": "1.40.2", "count": 1, "below_minimum": false },
        { "version": "1.20.2", "count": 1, "below_minimum": true },
        { "version": null, "count": 1, "below_minimum": false },
    ]);
    let report = eventually("the versions", async || {
        let report = server.json(&["proxy", "versions"]);
        anyhow::ensure!(report["envoy"]["versions"] == counts, "{report:#}");
        Ok(report)
    })
    .await;
    assert_eq!(report["envoy"]["below_minimum"], 1);
    assert_eq!(report["envoy"]["outdated"][0]["version"], "1.20.2");
    let text = server.run(&["proxy", "versions"]).stdout;
    assert!(text.contains("envoy      1.20.2   1        below the minimum\n"), "{text}");
    assert!(text.contains("\n1 below the oldest supported Envoy, 1."), "{text}");

    // Proxies that are away count with their last known version, also after a restart.
    assert!(child.terminate().await.success());
    let _child = server.start().await;
    server.ready().await;
    assert_eq!(server.json(&["proxy", "versions"]), report);
    eventually("the finding", async || {
        let readyz = server.readyz().await.json();
        let findings = readyz["findings"].as_array().unwrap().clone();
        let found = findings.into_iter().find(|finding| finding["code"] == "IM0754");
        let found = found.ok_or_else(|| anyhow::anyhow!("{readyz:#}"))?;
        let message = found["message"].as_str().unwrap();
        anyhow::ensure!(message.contains("store-2 (1.20.2)"), "{message}");
        anyhow::ensure!(found["severity"] == "warning");
        Ok(())
    })
    .await;
    let answer = get_once(server.loopback.socket(1, 15014), "/v1/versions", &[]).await.unwrap();
    assert_eq!((answer.status, answer.json()), (200.try_into().unwrap(), report));
    let metrics = get_once(server.loopback.socket(1, 15014), "/metrics", &[]).await.unwrap().text();
    for line in [
        "ironmesh_proxy_versions{component=\"envoy\",version=\"1.40.2\"} 1\n",
        "ironmesh_proxy_versions{component=\"envoy\",version=\"unknown\"} 1\n",
        "ironmesh_proxy_versions{component=\"agent\",version=\"other\"} 0\n",
        "ironmesh_proxies_below_minimum{component=\"envoy\"} 1\n",
        "ironmesh_proxies_cordoned{mode=\"drain\"} 0\n",
    ] {
        assert!(metrics.contains(line), "{line}{metrics}");
    }
}
