//! The alerts about enrollment, with a fake Azure.

use std::sync::Arc;

use ironmesh_tests::FakeAzure;
use ironmesh_tests::attestation::{AttestationCa, MachineMetadata, SIGNER};
use ironmesh_tests::azure::{GROUP, Machine, SUBSCRIPTION, ScaleSet};
use tokio::io::AsyncWriteExt as _;
use tokio::net::TcpStream;
use tokio::process::Command;
use uuid::Uuid;

use super::Alarms;
use crate::server::Server;

pub(super) const ALERTS: [&str; 4] =
    ["AttestationRejected", "EnrollmentFlood", "EnrollmentRejected", "MachineRejected"];

const POLICY: &str = r#"
[[service]]
name = "web"
ports = [{ port = 80, protocol = "http" }]
endpoints = { azure_scale_set = { name = "web", port = 8080, join = "primary" } }
"#;

#[tokio::test(flavor = "multi_thread")]
async fn alerts_about_enrollment_fire_and_clear() {
    let (azure, ca) = (FakeAzure::start().await, Arc::new(AttestationCa::new("azure", SIGNER)));
    let vm_id = azure.change(|group| {
        group.scale_sets.insert("web".to_owned(), ScaleSet::default());
        group.machines.push(Machine::of("web", "0", "10.0.0.1"));
        group.machine("0").vm_id
    });
    let settings = format!(
        "azure.subscription = \"{SUBSCRIPTION}\"\nazure.resource_group = \"{GROUP}\"\n\
         azure.interval = \"1s\"\nazure.reads_per_hour = 12000\n\
         azure.cloud = {{ resource_manager = \"{}\", login = \"{}\", metadata = \"{}\" }}\n\
         azure.attestation = {{ intermediates = \"intermediates\", roots = \"roots\", signer_domain = \"metadata.azure.com\" }}\n",
        azure.manager(),
        azure.login(),
        azure.metadata(),
    );
    let Some(server) = Server::open(&settings) else { return };
    ca.write(server.workspace.path());
    server.workspace.write("policy/services.toml", POLICY);
    let _child = server.start().await;
    server.ready().await;
    let Some(mut alarms) = Alarms::start(&server).await else { return };
    let created = server.json(&["proxy", "token", "--service", "web"]);
    let ca_hash = created["ca_hashes"][0].as_str().unwrap().to_owned();
    let url = format!("https://{}", server.loopback.socket(1, 15129));
    let join = async |more: &[&str]| {
        let arguments = ["agent", "join", &url, "--ca-hash", &ca_hash, "--out", "joined"];
        let command = server.workspace.command(&[&arguments[..], more].concat());
        let output = Command::from(command).kill_on_drop(true).output().await.unwrap();
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}");
    };

    // A token that was revoked.
    let text = |name: &str| created["tokens"][0][name].as_str().unwrap();
    server.workspace.write("token", &format!("{}\n", text("token")));
    let run = server.run(&["proxy", "token", "revoke", text("id")]);
    assert_eq!(run.code, 0, "{run:?}");
    alarms.fires_by("EnrollmentRejected", async || join(&["--token-file", "token"]).await).await;

    let metadata = MachineMetadata::start(&ca, vm_id, SUBSCRIPTION).await;
    let stranger = AttestationCa::new("stranger", SIGNER);
    metadata.forge(move |_, content| stranger.sign(&content));
    let service = metadata.url();
    let as_machine = ["--azure", "--azure-metadata", &service];
    alarms.fires_by("AttestationRejected", async || join(&as_machine).await).await;

    let metadata = MachineMetadata::start(&ca, Uuid::from_u128(7), SUBSCRIPTION).await;
    let service = metadata.url();
    let as_machine = ["--azure", "--azure-metadata", &service];
    alarms.fires_by("MachineRejected", async || join(&as_machine).await).await;
    alarms.clears("EnrollmentRejected").await;
    alarms.clears("AttestationRejected").await;
    alarms.clears("MachineRejected").await;

    // Clients without TLS, whose address is blocked soon.
    let enrollment = server.loopback.socket(1, 15129);
    alarms
        .fires_by("EnrollmentFlood", async || {
            for _ in 0..20 {
                let mut client = TcpStream::connect(enrollment).await.unwrap();
                let _ = client.write_all(b"GET / HTTP/1.1\r\n\r\n").await;
            }
        })
        .await;
    alarms.clears("EnrollmentFlood").await;
    alarms.assert_observed(&ALERTS);
}
