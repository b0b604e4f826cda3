//! Control planes that share a policy in etcd and elect a leader that polls Azure.

use std::time::Duration;

use ironmesh_tests::azure::{GROUP, Machine, RequestKind, SUBSCRIPTION, ScaleSet};
use ironmesh_tests::{Etcd, FakeAzure, eventually};
use tokio::time::Instant;

use crate::workspace::Workspace;

const POLICY: &str = "[[service]]\nname = \"web\"\nports = [{ port = 80, protocol = \"http\" }]\n\
                      endpoints = { azure_scale_set = { name = \"web\" } }\n";

/// The key of the lease, and below it the leader's report.
const LEADERSHIP_KEY: &str = "/ironmesh/default/policy/turns/azure";

/// Settings with this etcd and this Azure.
fn settings(etcd: &Etcd, azure: &FakeAzure) -> String {
    format!(
        "azure.subscription = \"{SUBSCRIPTION}\"\nazure.resource_group = \"{GROUP}\"\n\
         azure.interval = \"1s\"\nazure.reads_per_hour = 12000\n\
         azure.cloud = {{ resource_manager = \"{}\", login = \"{}\", metadata = \"{}\" }}\n{}",
        azure.manager(),
        azure.login(),
        azure.metadata(),
        etcd.settings("mesh")
    )
}

/// Two workspaces with these settings. `None` if a program is missing.
fn two_workspaces(etcd: &Etcd, azure: &FakeAzure) -> Option<[Workspace; 2]> {
    let settings = settings(etcd, azure);
    Some([Workspace::open(&settings)?, Workspace::open(&settings)?])
}

/// Adds a machine to the scale set.
fn add(azure: &FakeAzure, number: u8) {
    azure.change(|vms| {
        vms.scale_sets.entry("web".to_owned()).or_insert_with(ScaleSet::default);
        let address = format!("10.0.0.{number}");
        vms.machines.push(Machine::of("web", &number.to_string(), &address));
    });
}

/// Waits until a control plane has this many endpoints.
async fn wait_for_endpoints(workspace: &Workspace, count: usize) {
    eventually(&format!("{count} endpoints"), async || {
        let endpoints = workspace.get("/v1/endpoints/default/web").await?;
        let found = endpoints["services"][0]["endpoints"].as_array().map(Vec::len);
        anyhow::ensure!(found == Some(count), "{endpoints:#}");
        Ok(())
    })
    .await;
}

/// The time for which a follower waits for a report on its own query.
const LEASE: Duration = Duration::from_secs(10);

/// The number of control planes that have polled Azure: each requests its own token.
fn tokens_issued(azure: &FakeAzure) -> usize {
    azure.count(RequestKind::Metadata)
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_polls_azure_and_a_follower_replaces_it_on_death() {
    let Some(etcd) = Etcd::start().await else { return };
    let azure = FakeAzure::start().await;
    let Some([first, second]) = two_workspaces(&etcd, &azure) else { return };
    add(&azure, 1);
    first.write("policy/web.toml", POLICY);
    let revision = first.push("policy").await;
    let mut one = first.serve().await;
    first.wait_until_active(&revision).await;
    wait_for_endpoints(&first, 1).await;
    let mut other = second.serve().await;
    second.wait_until_active(&revision).await;
    wait_for_endpoints(&second, 1).await;
    add(&azure, 2);
    for workspace in [&first, &second] {
        wait_for_endpoints(workspace, 2).await;
    }
    assert_eq!(tokens_issued(&azure), 1, "only the leader polls");

    one.kill_hard().await;
    add(&azure, 3);
    wait_for_endpoints(&second, 3).await;
    assert_eq!(tokens_issued(&azure), 2, "the other takes over");
    one = first.serve().await;
    add(&azure, 4);
    for workspace in [&first, &second] {
        wait_for_endpoints(workspace, 4).await;
    }
    assert_eq!(tokens_issued(&azure), 2, "the restarted one follows");

    // A leader that ends in good order releases the lease.
    assert!(other.terminate().await.success());
    add(&azure, 5);
    wait_for_endpoints(&first, 5).await;
    assert_eq!(tokens_issued(&azure), 3);
    assert!(one.terminate().await.success());
}

#[tokio::test(flavor = "multi_thread")]
async fn control_planes_poll_azure_separately_without_etcd() {
    let Some(mut etcd) = Etcd::start().await else { return };
    let azure = FakeAzure::start().await;
    let Some([first, second]) = two_workspaces(&etcd, &azure) else { return };
    add(&azure, 1);
    first.write("policy/web.toml", POLICY);
    let revision = first.push("policy").await;
    let (mut one, mut other) = (first.serve().await, second.serve().await);
    for workspace in [&first, &second] {
        workspace.wait_until_active(&revision).await;
        wait_for_endpoints(workspace, 1).await;
    }
    assert_eq!(tokens_issued(&azure), 1);
    etcd.kill(0).await;
    add(&azure, 2);
    for workspace in [&first, &second] {
        wait_for_endpoints(workspace, 2).await;
    }
    assert_eq!(tokens_issued(&azure), 2);
    // Once etcd is back, elections go on: a follower polls no more.
    etcd.start_member(0);
    etcd.ready().await;
    add(&azure, 3);
    for workspace in [&first, &second] {
        wait_for_endpoints(workspace, 3).await;
    }
    for child in [&mut one, &mut other] {
        assert!(child.terminate().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_that_regains_its_lease_publishes_again() {
    let Some(etcd) = Etcd::start().await else { return };
    let azure = FakeAzure::start().await;
    let Some([first, second]) = two_workspaces(&etcd, &azure) else { return };
    add(&azure, 1);
    first.write("policy/web.toml", POLICY);
    let revision = first.push("policy").await;
    let mut one = first.serve().await;
    first.wait_until_active(&revision).await;
    wait_for_endpoints(&first, 1).await;
    let leader_state = async || {
        eventually("the lease and the report", async || {
            let leaders = etcd.ctl(&["get", "--prefix", "--keys-only", LEADERSHIP_KEY]).await;
            let keys: Vec<_> = leaders.split_whitespace().collect();
            if keys.len() == 2 { Ok(()) } else { Err(leaders) }
        })
        .await;
        etcd.ctl(&["get", "--print-value-only", LEADERSHIP_KEY]).await
    };
    // Its lease expires although it lives, as when it cannot reach etcd: it campaigns again.
    let before = leader_state().await;
    etcd.ctl(&["lease", "revoke", before.trim()]).await;
    assert_ne!(leader_state().await, before);
    // A new follower gets the whole report, although nothing has changed since.
    let mut other = second.serve().await;
    second.wait_until_active(&revision).await;
    wait_for_endpoints(&second, 1).await;
    assert_eq!(tokens_issued(&azure), 1, "only the leader polls");
    for child in [&mut one, &mut other] {
        assert!(child.terminate().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_that_cannot_publish_lets_followers_poll_azure() {
    let Some(etcd) = Etcd::start_with_request_limit(16 * 1024).await else { return };
    let azure = FakeAzure::start().await;
    let Some([first, second]) = two_workspaces(&etcd, &azure) else { return };
    add(&azure, 1);
    first.write("policy/web.toml", POLICY);
    let revision = first.push("policy").await;
    let mut one = first.serve().await;
    first.wait_until_active(&revision).await;
    wait_for_endpoints(&first, 1).await;
    let mut other = second.serve().await;
    second.wait_until_active(&revision).await;
    wait_for_endpoints(&second, 1).await;
    assert_eq!(tokens_issued(&azure), 1, "only the leader polls");
    // The report exceeds this etcd's limit.
    for number in 2..=150 {
        add(&azure, number);
    }
    for workspace in [&first, &second] {
        wait_for_endpoints(workspace, 150).await;
    }
    assert_eq!(tokens_issued(&azure), 2, "both poll");
    for child in [&mut one, &mut other] {
        assert!(child.terminate().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn follower_with_different_settings_polls_azure_itself() {
    const OTHER_GROUP: &str = "rgOther";
    let Some(etcd) = Etcd::start().await else { return };
    let azure = FakeAzure::start().await;
    add(&azure, 1);
    // A scale set of the same name in another resource group, which the settings of the second
    // control plane name.
    azure.change_in(SUBSCRIPTION, OTHER_GROUP, |vms| {
        vms.scale_sets.insert("web".to_owned(), ScaleSet::default());
        vms.machines.extend(["2", "3"].map(|n| Machine::of("web", n, &format!("10.1.0.{n}"))));
    });
    let Some([first, second]) = two_workspaces(&etcd, &azure) else { return };
    second.set(&settings(&etcd, &azure).replace(GROUP, OTHER_GROUP));
    first.write("policy/web.toml", POLICY);
    let revision = first.push("policy").await;
    let mut one = first.serve().await;
    first.wait_until_active(&revision).await;
    wait_for_endpoints(&first, 1).await;
    let mut other = second.serve().await;
    second.wait_until_active(&revision).await;
    // It polls for itself, since no report has its query.
    wait_for_endpoints(&second, 2).await;
    assert_eq!(tokens_issued(&azure), 2);
    add(&azure, 4);
    wait_for_endpoints(&first, 2).await;
    let endpoints = second.get("/v1/endpoints/default/web").await.unwrap().to_string();
    assert!(!endpoints.contains("10.0.0."), "{endpoints}");
    for child in [&mut one, &mut other] {
        assert!(child.terminate().await.success());
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_polls_the_scale_set_of_a_changed_policy() {
    let Some(etcd) = Etcd::start().await else { return };
    let azure = FakeAzure::start().await;
    add(&azure, 1);
    azure.change(|vms| {
        vms.scale_sets.insert("next".to_owned(), ScaleSet::default());
        vms.machines.extend(["2", "3"].map(|n| Machine::of("next", n, &format!("10.1.0.{n}"))));
    });
    let Some([first, second]) = two_workspaces(&etcd, &azure) else { return };
    first.write("policy/web.toml", POLICY);
    let revision = first.push("policy").await;
    let (mut one, mut other) = (first.serve().await, second.serve().await);
    for workspace in [&first, &second] {
        workspace.wait_until_active(&revision).await;
        wait_for_endpoints(workspace, 1).await;
    }
    first.write("policy/web.toml", &POLICY.replace("name = \"web\" } }", "name = \"next\" } }"));
    let started_at = Instant::now();
    let revision = first.push("policy").await;
    for workspace in [&first, &second] {
        workspace.wait_until_active(&revision).await;
        wait_for_endpoints(workspace, 2).await;
    }
    // If policy took longer than the lease to reach both, the follower may have polled meanwhile.
    if started_at.elapsed() < LEASE {
        assert_eq!(tokens_issued(&azure), 1, "only the leader polls");
    }
    for child in [&mut one, &mut other] {
        assert!(child.terminate().await.success());
    }
}
