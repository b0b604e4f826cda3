//! A policy of any size is visible whole or not at all.

use std::collections::BTreeSet;
use std::path::Path;

use fs_err as fs;

use ironmesh_tests::Etcd;

use crate::documents::write_large;
use crate::workspace::Workspace;

/// etcd limits a transaction to 128 operations.
const DOCUMENTS: usize = 200;

/// The marks of all documents below `folder`, and the number of documents.
fn marks(folder: &Path) -> (BTreeSet<String>, usize) {
    let (mut marks, mut count) = (BTreeSet::new(), 0);
    for part in fs::read_dir(folder).unwrap() {
        for document in fs::read_dir(part.unwrap().path()).unwrap() {
            let text = fs::read_to_string(document.unwrap().path()).unwrap();
            marks.insert(text.lines().next().unwrap().to_owned());
            count += 1;
        }
    }
    (marks, count)
}

#[tokio::test]
async fn large_policy_is_never_read_partially_during_replacement() {
    let Some(etcd) = Etcd::start().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    write_large(&workspace, "one", "one", DOCUMENTS);
    write_large(&workspace, "two", "two", DOCUMENTS);
    let revisions = [workspace.push("one").await, workspace.push("two").await];
    // More than the 1.5 MiB that etcd accepts in a transaction, in chunks of half a MiB.
    assert!(etcd.keys("/ironmesh/default/policy/revisions/").await.len() > 2 * 4);
    let mut serve = workspace.serve().await;
    workspace.wait_until_active(&revisions[1]).await;

    let push = async {
        for round in 0..12 {
            workspace.push(if round % 2 == 0 { "one" } else { "two" }).await;
        }
    };
    let mut pulls = 0;
    let mut seen = BTreeSet::new();
    let read = async {
        loop {
            let out = format!("out{pulls}");
            workspace.policy(&["pull", &out]).await.assert_success();
            let folder = workspace.path().join(&out);
            let (marks, count) = marks(&folder);
            assert_eq!((marks.len(), count), (1, DOCUMENTS), "{marks:?}");
            fs::remove_dir_all(&folder).unwrap();
            let readyz = workspace.readyz().await;
            let policy = &readyz["policy"];
            assert!(revisions.iter().any(|revision| policy["revision"] == *revision), "{readyz:#}");
            assert_eq!(policy["findings"], serde_json::json!([]), "{readyz:#}");
            assert!(policy["stale_since"].is_null(), "{readyz:#}");
            seen.extend(marks);
            pulls += 1;
        }
    };
    tokio::select! {
        () = push => {}
        () = read => {}
    }
    assert!(pulls > 1 && !seen.is_empty(), "{pulls} pulls saw {seen:?}");
    workspace.wait_until_active(&revisions[1]).await;
    assert!(serve.terminate().await.success());
}
