//! A silence that an operator sets at one control plane counts at all of them, also during an outage of etcd.

use ironmesh_tests::eventually;
use serde_json::Value;

use crate::replicas::{Replicas, json};

/// A service whose only endpoint has no proxy.
const POLICY: &str = r#"
[[service]]
name = "till"
ports = [{ port = 81, protocol = "http" }]
[service.endpoints]
static = [{ address = "10.0.0.9" }]
"#;

/// Waits until each control plane has the finding, silenced for this reason; none: active.
async fn wait_for_reason(replicas: &Replicas, reason: Option<&str>) {
    eventually(&format!("the silence {reason:?} at each control plane"), async || {
        for mesh in &replicas.all {
            let list = json(mesh, &["finding", "list"]).await;
            let findings = list["findings"].as_array().unwrap();
            let finding = findings.iter().find(|one| one["code"] == "IM0404");
            let silenced = finding.map(|one| one["silenced"]["reason"].as_str());
            anyhow::ensure!(silenced == Some(reason), "{list:#}");
        }
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn silence_counts_at_every_control_plane() {
    let replicas = Replicas::start_with(2, POLICY, |addresses, _| addresses.to_vec()).await;
    let Some(mut replicas) = replicas else { return };
    wait_for_reason(&replicas, None).await;
    let arguments = ["IM0404", "--object", "service:default/till", "--reason", "known"];
    let set = [&["finding", "silence"], &arguments[..], &["--for", "1h"]].concat();
    let silence = json(&replicas.all[0], &set).await;
    wait_for_reason(&replicas, Some("known")).await;

    // A control plane that starts later has it, too.
    replicas.all[1].restart_control_plane().await;
    wait_for_reason(&replicas, Some("known")).await;

    let id = silence["id"].as_str().unwrap();
    let removed = json(&replicas.all[1], &["finding", "unsilence", id]).await;
    assert_eq!(removed["state"], "removed", "{removed:#}");
    wait_for_reason(&replicas, None).await;
    let journal = eventually("both entries at the first control plane", async || {
        let journal = json(&replicas.all[0], &["journal", "--kind", "silence"]).await;
        let count = journal["entries"].as_array().map_or(0, Vec::len);
        anyhow::ensure!(count == 2, "{journal:#}");
        Ok(journal)
    })
    .await;
    let messages: Vec<&Value> =
        journal["entries"].as_array().unwrap().iter().map(|entry| &entry["message"]).collect();
    assert_eq!(*messages[1], Value::from(format!("removed silence {id}")), "{journal:#}");
}
