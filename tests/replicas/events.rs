//! A reader of events that changes control planes gets the entries of all of them, each once.

use ironmesh_tests::{Mesh, eventually};
use serde_json::Value;

use crate::replicas::{Replicas, json};

const POLICY: &str = "[[service]]\nname = \"till\"\n";

/// The stored events after this one.
async fn events(mesh: &Mesh, since: &str) -> Vec<Value> {
    let arguments = ["events", "--no-follow", "--since", since, "--output", "json"];
    let output = mesh.run(&arguments).await;
    assert!(output.status.success(), "{output:?}");
    let text = String::from_utf8(output.stdout).unwrap();
    text.lines().map(|line| serde_json::from_str(line).unwrap()).collect()
}

fn numbers(events: &[Value]) -> Vec<u64> {
    let entries = events.iter().filter(|event| event["event"] == "journal");
    entries.map(|event| event["data"]["sequence"].as_u64().unwrap()).collect()
}

/// Adds an entry to the journal at this control plane.
async fn reject_revocation(mesh: &Mesh) {
    let output = mesh.run(&["proxy", "revoke", "none", "--reason", "test"]).await;
    assert_eq!(output.status.code(), Some(1), "{output:?}");
}

#[tokio::test(flavor = "multi_thread")]
async fn reader_of_events_resumes_at_another_control_plane() {
    let replicas = Replicas::start_with(2, POLICY, |addresses, _| addresses.to_vec()).await;
    let Some(replicas) = replicas else { return };
    let (mut since, mut received) = ("0".to_owned(), Vec::new());
    for round in 0..4 {
        let (writer, reader) = (&replicas.all[round % 2], &replicas.all[(round / 2) % 2]);
        reject_revocation(writer).await;
        let journal = json(writer, &["journal", "--since", "1h"]).await;
        let last = journal["last"].as_u64().unwrap();
        let new = eventually("the entry in the stream", async || {
            let new = events(reader, &since).await;
            anyhow::ensure!(numbers(&new).contains(&last), "{new:#?}");
            Ok(new)
        })
        .await;
        received.extend(numbers(&new));
        let id = new.iter().rev().find_map(|event| event["id"].as_str());
        id.unwrap().clone_into(&mut since);
    }
    let journal = json(&replicas.all[0], &["journal", "--since", "1h"]).await;
    let stored = journal["entries"].as_array().unwrap().iter();
    let stored: Vec<_> = stored.map(|entry| entry["sequence"].as_u64().unwrap()).collect();
    let count = received.len();
    assert_eq!(received, stored[..count], "{journal:#}");
}
