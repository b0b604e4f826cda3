//! Three members with mutual TLS and users, some of which die.

use ironmesh_tests::Etcd;

use crate::documents::service;
use crate::workspace::Workspace;

#[tokio::test]
async fn member_failures_have_no_effect_until_quorum_is_lost() {
    let Some(mut etcd) = Etcd::start_three().await else { return };
    let Some(workspace) = Workspace::open(&etcd.settings("mesh")) else { return };
    workspace.write("policy/a.toml", &service("a"));
    let first = workspace.push("policy").await;
    let mut serve = workspace.serve().await;
    workspace.wait_until_active(&first).await;

    // kill -9 of the leader: the others elect another, and a push waits for that.
    let leader = etcd.leader().await;
    etcd.kill(leader).await;
    workspace.write("policy/a.toml", &service("b"));
    let second = workspace.push("policy").await;
    workspace.wait_until_active(&second).await;

    // One of three is left: writes fail, and reads would be stale.
    let another = (leader + 1) % 3;
    etcd.kill(another).await;
    let readyz = workspace
        .wait_for_readyz("staleness", |readyz| !readyz["policy"]["stale_since"].is_null())
        .await;
    let policy = &readyz["policy"];
    assert_eq!((&readyz["ready"], &policy["revision"]), (&true.into(), &second.as_str().into()));
    assert_eq!(policy["findings"], serde_json::json!([]));
    let rendered = policy["rendered"].as_str().unwrap();
    assert!(rendered.contains("none of the etcd endpoints can be used"), "{rendered}");
    for member in 0..3 {
        assert!(rendered.contains(&etcd.endpoint(member)), "{rendered}");
    }
    let status = workspace.status().await;
    let wrong = "wrong: the policy in `/ironmesh/default/policy in etcd at ";
    assert!(status.code == 1 && status.stdout.starts_with(wrong), "{status:?}");
    assert!(status.stdout.contains("cannot be read since "), "{status:?}");
    assert!(!status.stdout.contains("policy check"), "{status:?}");
    workspace.write("policy/a.toml", &service("c"));
    let run = workspace.policy(&["push", "policy"]).await;
    assert!(
        run.code == 1 && run.stderr.contains("none of the etcd endpoints can be used"),
        "{run:?}"
    );

    etcd.start_member(leader);
    etcd.ready().await;
    workspace.wait_until_active(&second).await;
    let third = workspace.push("policy").await;
    workspace.wait_until_active(&third).await;
    assert!(serve.terminate().await.success());
}
