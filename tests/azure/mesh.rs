//! A mesh with a scale set under load: three web servers with Envoys, of which the third may be
//! removed.

use std::net::{IpAddr, Ipv6Addr};
use std::os::unix::fs::PermissionsExt as _;

use fs_err as fs;
use ironmesh_tests::azure::{GROUP, Machine, SUBSCRIPTION, ScaleSet};
use ironmesh_tests::{
    App, Envoy, FakeAzure, Load, Mesh, Programs, ProxyOptions, REQUESTS_PER_FAULT, eventually,
};
use serde_json::Value;
use tempfile::NamedTempFile;

const POLICY: &str = r#"
[[service]]
name = "web"
ports = [{ name = "web", port = 80, protocol = "http" }]
endpoints = { azure_scale_set = { name = "Web", port = 8080 } }

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "buyers"
destination = { name = "web" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// The machines: their names in Azure, and the hosts that peers dial.
const MACHINES: [(&str, u8); 3] = [("0", 21), ("1", 22), (REMOVABLE, 23)];

/// The machine that a test removes.
const REMOVABLE: &str = "2";

/// The settings for this fake Azure.
pub(crate) fn settings(azure: &FakeAzure) -> String {
    format!(
        "azure.subscription = \"{SUBSCRIPTION}\"\nazure.resource_group = \"{GROUP}\"\n\
         azure.interval = \"1s\"\nazure.reads_per_hour = 12000\n\
         azure.cloud = {{ resource_manager = \"{}\", login = \"{}\", metadata = \"{}\" }}\n",
        azure.manager(),
        azure.login(),
        azure.metadata()
    )
}

/// The mesh and its load.
pub(crate) struct AzureMesh {
    pub(crate) azure: FakeAzure,
    pub(crate) mesh: Mesh,
    load: Load,
    buyer: Envoy,
    sidecars: Vec<Envoy>,
    /// The file with the application's secret.
    secret: NamedTempFile,
    _apps: Vec<App>,
}

impl AzureMesh {
    /// Opens the mesh. `None` skips the test because a program is missing.
    pub(crate) async fn open() -> Option<Self> {
        Self::open_as(POLICY, azure_ipv4, |_| String::new()).await
    }

    /// Opens the mesh with machines that have only IPv6 addresses, and a control plane that
    /// authenticates by a secret.
    pub(crate) async fn open_with_ipv6_by_secret() -> Option<Self> {
        let policy = POLICY.replace("port = 8080 }", "port = 8080, address_family = \"ipv6\" }");
        assert_ne!(policy, POLICY);
        let with_secret = |file: &NamedTempFile| {
            format!(
                "azure.client_secret = {{ tenant = \"72f988bf-86f1-41af-91ab-2d7cd011db47\", client_id = \"11111111-2222-3333-4444-555555555555\", secret_file = \"{}\" }}\n",
                file.path().display()
            )
        };
        Self::open_as(&policy, azure_ipv6, with_secret).await
    }

    async fn open_as(
        policy: &str,
        azure_ipv4: impl Fn(&Mesh, u8) -> IpAddr,
        credential: impl Fn(&NamedTempFile) -> String,
    ) -> Option<Self> {
        let programs = Programs::find()?;
        let azure = FakeAzure::start().await;
        // No other user may read the file.
        let secret = NamedTempFile::new().unwrap();
        fs::write(secret.path(), "s3cret").unwrap();
        let settings = settings(&azure) + &credential(&secret);
        let mut mesh = Mesh::prepare(&settings, &programs, &[("policy.toml", policy)]);
        azure.change(|vms| {
            vms.scale_sets.insert("web".to_owned(), ScaleSet::default());
            vms.machines.extend(MACHINES.map(|(name, host)| {
                Machine::of("web", name, &azure_ipv4(&mesh, host).to_string())
            }));
        });
        mesh.restart_control_plane().await;
        let (mut apps, mut sidecars) = (Vec::new(), Vec::new());
        for (name, host) in MACHINES {
            let vm_id = azure.change(|vms| vms.machine(name).vm_id);
            apps.push(App::http1(name, mesh.loopback().socket(host, 8080)).await);
            let proxy = ProxyOptions::new("default/web", host).machine(vm_id);
            sidecars.push(mesh.envoy(&proxy).await);
        }
        let buyer = mesh.envoy(&ProxyOptions::new("default/buyer", 11)).await;
        for (name, _) in MACHINES {
            wait_for_called(&mesh, &buyer, name, true).await;
        }
        let load = Load::start(buyer.socket(15080), "web", "/");
        Some(Self { azure, mesh, load, buyer, sidecars, secret, _apps: apps })
    }

    /// Lets other users read the secret, or not.
    pub(crate) fn set_mode_of_secret(&self, mode: u32) {
        fs::set_permissions(self.secret.path(), std::fs::Permissions::from_mode(mode)).unwrap();
    }

    /// Injects a fault that `fault` observes and removes: no endpoint is withdrawn meanwhile.
    pub(crate) async fn assert_tolerated(&self, what: &str, fault: impl AsyncFnOnce(&Self)) {
        fault(self).await;
        let called = self.called_hosts().await;
        assert_eq!(called.len(), MACHINES.len(), "{what}: {called:?}");
        self.wait_until_healthy().await;
        eprintln!("{what}: no endpoint was withdrawn");
    }

    /// Waits for a finding with this code prefix and these words; all machines stay in use
    /// meanwhile.
    pub(crate) async fn wait_for_finding(&self, code: &str, words: &str) {
        eventually(&format!("{code}: {words}"), async || {
            let called = self.called_hosts().await;
            assert_eq!(called.len(), MACHINES.len(), "{called:?}");
            let findings = self.mesh.readyz().await["findings"].clone();
            let matches = |finding: &Value| {
                let message = finding["message"].as_str().unwrap_or_default();
                finding["code"].as_str().is_some_and(|of| of.starts_with(code))
                    && message.contains(words)
            };
            let all = findings.as_array().unwrap();
            if all.iter().any(matches) { Ok(()) } else { Err(findings.to_string()) }
        })
        .await;
        self.wait_for_load().await;
    }

    /// Waits until no finding is left.
    pub(crate) async fn wait_until_healthy(&self) {
        eventually("nothing to be wrong", async || {
            let findings = self.mesh.readyz().await["findings"].clone();
            let is_well = findings.as_array().is_some_and(Vec::is_empty);
            if is_well { Ok(()) } else { Err(findings.to_string()) }
        })
        .await;
    }

    /// Waits until enough requests have met a fault.
    pub(crate) async fn wait_for_load(&self) {
        self.load.wait_for_requests(REQUESTS_PER_FAULT).await;
    }

    /// The healthy hosts in the buyer's Envoy.
    async fn called_hosts(&self) -> Vec<String> {
        let text = self.buyer.admin_get("/clusters").await.text();
        MACHINES
            .iter()
            .map(|(_, host)| line(&self.mesh, *host))
            .filter(|line| text.contains(line))
            .collect()
    }

    /// Fails the test unless all requests succeeded and a later removal arrives. Only once: an
    /// instance that leaves and returns repeatedly flaps.
    pub(crate) async fn close(mut self) {
        self.azure.change(|vms| vms.machine(REMOVABLE).power = Some("deallocating"));
        wait_for_called(&self.mesh, &self.buyer, REMOVABLE, false).await;
        self.azure.change(|vms| vms.machine(REMOVABLE).power = Some("running"));
        wait_for_called(&self.mesh, &self.buyer, REMOVABLE, true).await;
        self.wait_for_load().await;
        let report = self.load.finish().await;
        report.assert_undisturbed();
        let retries = self.buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await;
        eprintln!(
            "{} requests in {:?}, none failed; upstream_rq_retry: {retries}; {} calls to Azure",
            report.requests,
            report.duration,
            self.azure.calls()
        );
        assert_eq!(retries, 0);
        assert_eq!(self.azure.foreign_requests(), [""; 0], "what is Azure's alone went elsewhere");
        for envoy in self.sidecars.iter().chain([&self.buyer]) {
            envoy.assert_no_update_errors().await;
        }
        self.mesh.stop().await;
    }
}

/// A machine's address in Azure: not the one that peers dial, as with NAT. The machine's id ties
/// them.
fn azure_ipv4(mesh: &Mesh, host: u8) -> IpAddr {
    mesh.loopback().host(host + 100)
}

/// The same without an IPv4 address.
fn azure_ipv6(_: &Mesh, host: u8) -> IpAddr {
    Ipv6Addr::new(0xfd00, 0, 0, 0, 0, 0, 0, host.into()).into()
}

/// Waits until the buyer's Envoy uses a machine, or does not.
async fn wait_for_called(mesh: &Mesh, buyer: &Envoy, name: &str, is_called: bool) {
    let (_, host) = *MACHINES.iter().find(|(of, _)| *of == name).unwrap();
    let host = line(mesh, host);
    eventually(&format!("{name} to be called: {is_called}"), async || {
        let text = buyer.admin_get("/clusters").await.text();
        let is_there = text.lines().any(|line| line == host);
        if is_there == is_called { Ok(()) } else { Err(mesh.admin_get("/v1/endpoints").await) }
    })
    .await;
}

/// Envoy's line for a healthy host.
fn line(mesh: &Mesh, host: u8) -> String {
    format!("default/web|80::{}:15003::health_flags::healthy", mesh.loopback().host(host))
}
