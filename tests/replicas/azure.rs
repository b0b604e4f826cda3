//! Azure is polled by one of the control planes that share a store in etcd.

use ironmesh_tests::azure::{GROUP, Machine, RequestKind, SUBSCRIPTION, ScaleSet};
use ironmesh_tests::{FakeAzure, Mesh, eventually};

use crate::replicas::Replicas;

const POLICY: &str = "[[service]]\nname = \"web\"\nports = [{ port = 80, protocol = \"http\" }]\n\
                      endpoints = { azure_scale_set = { name = \"web\" } }\n";

/// Adds a machine to the scale set.
fn add(azure: &FakeAzure, number: u8) {
    azure.change(|vms| {
        vms.scale_sets.entry("web".to_owned()).or_insert_with(ScaleSet::default);
        let address = format!("10.0.0.{number}");
        vms.machines.push(Machine::of("web", &number.to_string(), &address));
    });
}

/// Waits until a control plane has this many endpoints.
async fn wait_for_endpoints(mesh: &Mesh, count: usize) {
    eventually(&format!("{count} endpoints"), async || {
        let endpoints = mesh.admin_get("/v1/endpoints/default/web").await;
        let found = endpoints["services"][0]["endpoints"].as_array().map(Vec::len);
        anyhow::ensure!(found == Some(count), "{endpoints:#}");
        Ok(())
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn leader_alone_polls_azure_and_a_stalled_one_is_replaced() {
    let azure = FakeAzure::start().await;
    add(&azure, 1);
    let settings = format!(
        "azure.subscription = \"{SUBSCRIPTION}\"\nazure.resource_group = \"{GROUP}\"\n\
         azure.interval = \"1s\"\nazure.reads_per_hour = 12000\n\
         azure.cloud = {{ resource_manager = \"{}\", login = \"{}\", metadata = \"{}\" }}\n",
        azure.manager(),
        azure.login(),
        azure.metadata(),
    );
    let Some(replicas) =
        Replicas::with_settings(2, &settings, POLICY, |addresses, _| addresses.to_vec()).await
    else {
        return;
    };
    for mesh in &replicas.all {
        wait_for_endpoints(mesh, 1).await;
    }
    // Each control plane that polls requests a token of its own.
    assert_eq!(azure.count(RequestKind::Metadata), 1, "only the leader polls");
    let keys = replicas.etcd.keys("/ironmesh/default/leases/turns/").await;
    assert!(keys.iter().any(|key| key.ends_with("/azure")), "{keys:?}");

    // Whichever leads: one of both is stalled for longer than the lease, and then the other one.
    for number in [0, 1] {
        let (stalled, other) = (&replicas.all[number], &replicas.all[1 - number]);
        stalled.freeze_control_plane();
        let count = number + 2;
        add(&azure, u8::try_from(count).unwrap());
        wait_for_endpoints(other, count).await;
        stalled.thaw_control_plane();
        wait_for_endpoints(stalled, count).await;
    }

    // The report is sealed. A forged one is not used, and the next one of the leader is.
    let report = "/ironmesh/default/leases/turns/azure/told";
    let shown = replicas.etcd.ctl(&["get", "-w", "json", report]).await;
    let begin = data_encoding::BASE64.encode(br#"{"format""#);
    assert!(shown.contains("\"value\"") && !shown.contains(&begin), "{shown}");
    let forged = r#"{"format":2,"questions":[],"services":[],"troubles":[],"knows_whom":true,"is_complete":true,"stale":null}"#;
    replicas.etcd.ctl(&["put", report, forged]).await;
    add(&azure, 4);
    for mesh in &replicas.all {
        wait_for_endpoints(mesh, 4).await;
    }
}
