//! Machines that join without a token: the real binary on both sides, a fake Azure, and documents
//! of a test CA.

use std::path::{Path, PathBuf};
use std::process::Output;
use std::sync::Arc;

use fs_err as fs;
use ironmesh_tests::attestation::{AttestationCa, MachineMetadata, SIGNER};
use ironmesh_tests::azure::{AzureFault, Machine, RequestKind, SUBSCRIPTION, ScaleSet};
use ironmesh_tests::{Envoy, FakeAzure, Mesh, Programs, eventually};
use jiff::SignedDuration;
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;
use uuid::Uuid;

use crate::mesh::settings;

const POLICY: &str = r#"
[[service]]
name = "web"
ports = [{ name = "web", port = 80, protocol = "http" }]
endpoints = { azure_scale_set = { name = "web", port = 8080, join = "primary" } }

[[service]]
name = "reports"
ports = [{ name = "web", port = 81, protocol = "http" }]
endpoints = { azure_scale_set = { name = "web", port = 8081, join = "secondary" } }

[[service]]
name = "db"
ports = [{ name = "sql", port = 3306, protocol = "tcp" }]
endpoints = { azure_scale_set = { name = "db" } }
"#;

/// The host numbers of the machines.
const WEB: u8 = 31;
const OTHER_WEB: u8 = 32;
const DB: u8 = 33;

/// A control plane, an Azure with the scale sets `web` and `db`, and Azure's CA.
pub(crate) struct Shop {
    pub(crate) programs: Programs,
    pub(crate) azure: FakeAzure,
    pub(crate) mesh: Mesh,
    pub(crate) ca: Arc<AttestationCa>,
    trust: TempDir,
    ca_hash: String,
}

impl Shop {
    /// Opens it. `None` skips the test because a program is missing.
    async fn open() -> Option<Self> {
        let intermediates = |folder: &Path| {
            let folder = folder.display();
            format!("[azure.attestation]\nintermediates = \"{folder}/intermediates\"\n")
        };
        Self::open_with(POLICY, intermediates).await
    }

    /// Opens it with this policy and trust, whose folder is the argument.
    pub(crate) async fn open_with(
        policy: &str,
        attestation: impl Fn(&Path) -> String,
    ) -> Option<Self> {
        let programs = Programs::find()?;
        let azure = FakeAzure::start().await;
        let (ca, trust) = (Arc::new(AttestationCa::new("azure", SIGNER)), tempfile::tempdir());
        let trust = trust.unwrap();
        ca.write(trust.path());
        // A fake cloud has neither roots nor a domain of Azure.
        let settings = format!(
            "{}{}roots = \"{}/roots\"\nsigner_domain = \"metadata.azure.com\"\n",
            settings(&azure),
            attestation(trust.path()),
            trust.path().display()
        );
        let mut mesh = Mesh::prepare("", &programs, &[("policy.toml", policy)]);
        // The table of the trust comes last.
        let file = mesh.folder().join("ironmesh.toml");
        let whole = fs::read_to_string(&file).unwrap();
        let (dotted, table) = settings.split_at(settings.find("[azure.attestation]").unwrap());
        fs::write(&file, format!("{dotted}{whole}\n{table}")).unwrap();
        azure.change(|vms| {
            for (set, name, host) in [("web", "0", WEB), ("web", "1", OTHER_WEB), ("db", "7", DB)] {
                vms.scale_sets.entry(set.to_owned()).or_insert_with(ScaleSet::default);
                let address = mesh.loopback().host(host).to_string();
                vms.machines.push(Machine::of(set, name, &address));
            }
        });
        mesh.restart_control_plane().await;
        let service = if policy == POLICY { "default/web" } else { "default/stock" };
        let token = ["proxy", "token", "--service", service, "--output", "json"];
        let token: Value = serde_json::from_slice(&mesh.run(&token).await.stdout).unwrap();
        let ca_hash = token.pointer("/ca_hashes/0").unwrap().as_str().unwrap().to_owned();
        Some(Self { programs, azure, mesh, ca, trust, ca_hash })
    }

    /// The metadata service of a machine.
    async fn metadata(&self, name: &str) -> MachineMetadata {
        let vm_id = self.azure.change(|vms| vms.machine(name).vm_id);
        MachineMetadata::start(&self.ca, vm_id, SUBSCRIPTION).await
    }

    fn folder(&self, out: &str) -> PathBuf {
        self.mesh.folder().join(out)
    }

    fn url(&self) -> String {
        format!("https://{}", self.mesh.loopback().socket(1, 15129))
    }

    /// Joins as the machine of this metadata service, into a folder of this name.
    async fn join(&self, metadata: &MachineMetadata, out: &str, more: &[&str]) -> Output {
        let (url, folder, service) = (self.url(), self.folder(out), metadata.url());
        let first = ["agent", "join", &url, "--azure", "--azure-metadata", &service];
        let next = ["--ca-hash", &self.ca_hash, "--out", folder.to_str().unwrap(), "--admin-tcp"];
        self.mesh.run_on_machine(&[&first[..], &next, more].concat()).await
    }

    /// The words of a join that fails.
    async fn rejection(&self, metadata: &MachineMetadata, more: &[&str]) -> String {
        let output = self.join(metadata, "rejected", more).await;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        assert_eq!(output.status.code(), Some(1), "{words}");
        assert!(!self.folder("rejected").exists(), "{words}");
        let left = fs::read_dir(self.mesh.folder()).unwrap();
        let left = left.filter(|entry| {
            entry.as_ref().unwrap().file_name().to_string_lossy().starts_with(".rejected")
        });
        assert_eq!(left.count(), 0, "a decided request leaves no key");
        words
    }

    async fn findings(&self) -> String {
        let output = self.mesh.run(&["status"]).await;
        String::from_utf8(output.stdout).unwrap()
    }
}

fn assert_success(output: &Output) {
    assert!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
}

#[tokio::test(flavor = "multi_thread")]
async fn scale_set_machine_joins_without_a_token_and_serves() {
    let Some(shop) = Shop::open().await else { return };
    let metadata = shop.metadata("0").await;
    let address = shop.mesh.loopback().host(WEB);
    let app_address = address.to_string();
    let output = shop.join(&metadata, "proxy", &["--app-address", &app_address]).await;
    assert_success(&output);
    let envoy = &shop.programs.envoy;
    let mut envoy = Envoy::start(envoy, "web", &shop.folder("proxy"), address, 30).await;
    let proxy = eventually("the proxy to be synced", async || {
        let proxies = shop.mesh.proxies().await;
        let proxy = proxies.get(0).cloned().unwrap_or_default();
        match proxy.pointer("/sync/state").and_then(Value::as_str) {
            Some("synced") => Ok(proxy),
            _ => Err(proxy),
        }
    })
    .await;
    let is = |pointer: &str, wanted: &str| {
        assert_eq!(proxy.pointer(pointer).and_then(Value::as_str), Some(wanted), "{proxy:#}");
    };
    let vm_id = shop.azure.change(|vms| vms.machine("0").vm_id).to_string();
    is("/services/0", "default/web");
    is("/services/1", "default/reports");
    is("/machine", &vm_id);
    is("/mesh_address", &format!("{address}:15003"));
    let shown = shop.mesh.run(&["proxy", "show", "web-1"]).await;
    let shown = String::from_utf8(shown.stdout).unwrap();
    assert!(shown.contains("/virtualMachineScaleSets/web/virtualMachines/0"), "{shown}");
    eventually("the enrollment in the journal", async || {
        let journal = shop.mesh.run(&["journal", "--kind", "enroll"]).await;
        let journal = String::from_utf8(journal.stdout).unwrap();
        journal.contains(&format!("azure machine {vm_id}")).then_some(()).ok_or(journal)
    })
    .await;
    envoy.assert_running();
}

#[tokio::test(flavor = "multi_thread")]
async fn documents_that_prove_nothing_enroll_no_machine() {
    let Some(shop) = Shop::open().await else { return };
    // A document that was valid once: it has enrolled the other machine.
    let other = shop.metadata("1").await;
    assert_success(&shop.join(&other, "other", &[]).await);
    let [seen] = other.documents().try_into().unwrap();

    let metadata = shop.metadata("0").await;
    metadata.forge(move |_, _| seen.clone());
    let words = shop.rejection(&metadata, &[]).await;
    assert!(words.contains("different nonce"), "replayed: {words}");
    metadata.forge(|ca, mut content| {
        content.nonce = "0123456789abcdef0123456789abcdef".to_owned();
        ca.sign(&content)
    });
    let words = shop.rejection(&metadata, &[]).await;
    assert!(words.contains("different nonce"), "relayed for another key: {words}");
    metadata.forge(|ca, mut content| {
        content.expires_at = content.created_at - SignedDuration::from_secs(1);
        ca.sign(&content)
    });
    let words = shop.rejection(&metadata, &[]).await;
    assert!(words.contains("expired"), "{words}");
    for (name, signer) in [("azure", "metadata.azure.com.example.org"), ("stranger", SIGNER)] {
        let stranger = AttestationCa::new(name, signer);
        metadata.forge(move |_, content| stranger.sign(&content));
        let words = shop.rejection(&metadata, &[]).await;
        let expected = if name == "stranger" { "stranger intermediate" } else { signer };
        assert!(words.contains(expected), "{words}");
    }
    metadata.forge(|ca, content| {
        let document = ca.sign(&content);
        document[..document.len() / 8 * 4].to_owned()
    });
    let words = shop.rejection(&metadata, &[]).await;
    assert!(words.contains("no PKCS#7 signed data"), "truncated: {words}");
    metadata.forge(|ca, content| {
        let document = data_encoding::BASE64.decode(ca.sign(&content).as_bytes()).unwrap();
        let id = content.vm_id.to_string();
        let at = document.windows(36).position(|window| window == id.as_bytes()).unwrap();
        let mut altered = document;
        altered[at] ^= 1;
        data_encoding::BASE64.encode(&altered)
    });
    let words = shop.rejection(&metadata, &[]).await;
    assert!(words.contains("altered"), "{words}");
    let proxies = shop.mesh.proxies().await;
    assert_eq!(proxies.as_array().unwrap().len(), 1, "{proxies:#}");
}

#[tokio::test(flavor = "multi_thread")]
async fn rejected_machines_get_the_reason_and_the_fix() {
    let Some(shop) = Shop::open().await else { return };
    let unknown = Uuid::new_v4();
    let metadata = MachineMetadata::start(&shop.ca, unknown, SUBSCRIPTION).await;
    let words = shop.rejection(&metadata, &[]).await;
    assert!(words.contains(&format!("Azure machine {unknown}")), "{words}");
    assert!(words.contains("with `join = \"primary\"`"), "{words}");
    let elsewhere = Uuid::new_v4().to_string();
    let metadata = MachineMetadata::start(&shop.ca, unknown, &elsewhere).await;
    let words = shop.rejection(&metadata, &[]).await;
    assert!(words.contains(&elsewhere), "{words}");
    let words = shop.rejection(&shop.metadata("7").await, &[]).await;
    let fix = "add `join = \"primary\"` to its `azure_scale_set` in `[service.endpoints]` of `default/db`";
    assert!(words.contains("the scale set `db`") && words.contains(fix), "{words}");
    let metadata = shop.metadata("0").await;
    let words = shop.rejection(&metadata, &["--address", "203.0.113.9"]).await;
    assert!(words.contains("does not have the address 203.0.113.9"), "{words}");
    // The fix works, without a restart.
    let opened = POLICY.replace("name = \"db\" } }", "name = \"db\", join = \"primary\" } }");
    assert_ne!(opened, POLICY);
    shop.mesh.write_policy("policy.toml", &opened);
    let db = shop.metadata("7").await;
    eventually("the machine to join", async || {
        let output = shop.join(&db, "db", &[]).await;
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        output.status.success().then_some(()).ok_or(words)
    })
    .await;
}

#[tokio::test(flavor = "multi_thread")]
async fn machine_joins_again_only_after_a_reimage() {
    let Some(shop) = Shop::open().await else { return };
    let metadata = shop.metadata("0").await;
    assert_success(&shop.join(&metadata, "first", &[]).await);
    let words = shop.rejection(&metadata, &[]).await;
    assert!(words.contains("is proxy web-1 already"), "{words}");
    assert!(shop.findings().await.contains("IM0744"), "{}", shop.findings().await);
    shop.azure.change(|vms| vms.machine("0").reimage());
    assert_success(&shop.join(&metadata, "second", &[]).await);
    let proxies = shop.mesh.proxies().await;
    let state = |n: usize| (proxies[n]["name"].clone(), proxies[n]["state"].clone());
    assert_eq!(state(0), ("web-1".into(), "revoked".into()), "{proxies:#}");
    assert_eq!(state(1), ("web-2".into(), "unclaimed".into()), "{proxies:#}");
    assert!(!shop.findings().await.contains("IM0744"), "{}", shop.findings().await);
}

/// A machine that no poll has shown yet, and an Azure that recovers.
#[tokio::test(flavor = "multi_thread")]
async fn new_machine_is_looked_up_while_azure_recovers() {
    let Some(shop) = Shop::open().await else { return };
    let address = shop.mesh.loopback().host(34).to_string();
    let fault = AzureFault::Transient(500, 4);
    shop.azure.set_fault(RequestKind::UniformMachines, fault);
    shop.azure.change(|vms| vms.machines.push(Machine::of("web", "2", &address)));
    assert_success(&shop.join(&shop.metadata("2").await, "new", &[]).await);
}

/// The folder of trust changes without a restart, as Azure's authorities do without notice.
#[tokio::test(flavor = "multi_thread")]
async fn new_intermediate_counts_without_a_restart() {
    let Some(shop) = Shop::open().await else { return };
    let metadata = shop.metadata("0").await;
    let file = shop.trust.path().join("intermediates/azure.pem");
    let kept = fs::read(&file).unwrap();
    fs::remove_file(&file).unwrap();
    let words = shop.rejection(&metadata, &[]).await;
    assert!(words.contains("`CN=azure intermediate`"), "{words}");
    fs::write(&file, kept).unwrap();
    assert_success(&shop.join(&metadata, "proxy", &[]).await);
}

#[tokio::test(flavor = "multi_thread")]
async fn running_agent_joins_by_azure() {
    let Some(shop) = Shop::open().await else { return };
    let metadata = shop.metadata("0").await;
    let (folder, config) = (shop.folder("proxy"), shop.folder("agent.toml"));
    let text = format!(
        "control_plane = [\"{}\"]\nca_hash = [\"{}\"]\njoin = \"azure\"\nazure_metadata = \"{}\"\nfolder = \"{}\"\n",
        shop.url(),
        shop.ca_hash,
        metadata.url(),
        folder.display()
    );
    fs::write(&config, text).unwrap();
    let mut agent = Command::new(&shop.programs.ironmesh);
    let agent = agent.args(["agent", "run", "--config"]).arg(&config).kill_on_drop(true).spawn();
    eventually("the folder of the proxy", async || {
        folder.join("proxy.crt").exists().then_some(()).ok_or("missing")
    })
    .await;
    drop(agent);
}

#[tokio::test(flavor = "multi_thread")]
async fn missing_metadata_service_is_reported() {
    let Some(shop) = Shop::open().await else { return };
    let metadata = shop.metadata("0").await;
    let url = metadata.url();
    drop(metadata);
    let folder = shop.folder("rejected");
    let join = ["agent", "join", &shop.url(), "--azure", "--azure-metadata", &url];
    let rest = ["--ca-hash", &shop.ca_hash, "--out", folder.to_str().unwrap()];
    let output = shop.mesh.run_on_machine(&[&join[..], &rest].concat()).await;
    let words = String::from_utf8(output.stderr).unwrap();
    assert_eq!(output.status.code(), Some(1), "{words}");
    assert!(words.contains(&url) && words.contains("see that this is an Azure machine"), "{words}");
}
