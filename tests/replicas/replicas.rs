//! Several control planes of one mesh, each with its own addresses and state folder.

use std::net::SocketAddr;
use std::path::PathBuf;

use fs_err as fs;
use ironmesh_tests::{Etcd, Mesh, Programs, ProxyOptions};
use serde_json::Value;

/// The policy of most tests: one service, and one caller of it.
pub(crate) const POLICY: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 80, protocol = "http", target_port = 8080 }]
[[service]]
name = "buyer"
[[http_route_group]]
name = "all"
matches = [{ name = "all" }]
[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

/// Control planes of one mesh, and their etcd. Each may be stopped.
#[derive(Debug)]
pub(crate) struct Replicas {
    /// Before etcd, so that they end first.
    pub(crate) all: Vec<Mesh>,
    pub(crate) etcd: Etcd,
}

impl Replicas {
    /// Starts three etcd members and this many control planes. `None` skips the test because a program is missing.
    pub(crate) async fn start(count: usize) -> Option<Self> {
        // Its own address first.
        Self::start_with(count, POLICY, |addresses, number| {
            let mut advertised = addresses.to_vec();
            advertised.rotate_left(number);
            advertised
        })
        .await
    }

    /// The same with a policy, and the addresses that each control plane advertises, of those of xDS of all of them.
    pub(crate) async fn start_with(
        count: usize,
        policy: &str,
        advertised: impl Fn(&[SocketAddr], usize) -> Vec<SocketAddr>,
    ) -> Option<Self> {
        Self::with_settings(count, "", policy, advertised).await
    }

    /// The same with further settings of each control plane.
    pub(crate) async fn with_settings(
        count: usize,
        settings: &str,
        policy: &str,
        advertised: impl Fn(&[SocketAddr], usize) -> Vec<SocketAddr>,
    ) -> Option<Self> {
        let programs = Programs::find()?;
        let etcd = Etcd::start_three().await?;
        let all: Vec<_> =
            (0..count).map(|_| Mesh::prepare(settings, &programs, &[("p.toml", policy)])).collect();
        let addresses: Vec<SocketAddr> = all.iter().map(Mesh::xds).collect();
        for (number, mesh) in all.iter().enumerate() {
            // The last table is `[listen]`.
            mesh.add_settings(&format!("api = \"{}\"", api(mesh)));
            mesh.add_settings(&etcd.store_settings());
            mesh.advertise(&advertised(&addresses, number));
        }
        let mut replicas = Self { all, etcd };
        replicas.initialize().await;
        for mesh in &mut replicas.all {
            mesh.restart_control_plane().await;
        }
        Some(replicas)
    }

    /// Creates the store with the first control plane's settings, and gives its key to the others.
    async fn initialize(&self) {
        let output = self.all[0].run(&["store", "init"]).await;
        assert!(output.status.success(), "{output:?}");
        for mesh in &self.all[1..] {
            fs::create_dir_all(key(mesh).parent().unwrap()).unwrap();
            fs::copy(key(&self.all[0]), key(mesh)).unwrap();
        }
    }

    /// Enrolls a proxy with one of the control planes; returns the folder with its files.
    pub(crate) async fn enroll(&self, replica: usize, service: &str, host: u8) -> PathBuf {
        self.all[replica].bootstrap(&ProxyOptions::new(service, host)).await
    }
}

/// The address of the listener for operators.
pub(crate) fn api(mesh: &Mesh) -> SocketAddr {
    mesh.loopback().socket(1, 15130)
}

/// The file of the key-encryption key.
pub(crate) fn key(mesh: &Mesh) -> PathBuf {
    mesh.folder().join("state").join("kek")
}

/// Runs `ironmesh` with JSON output, which must succeed.
pub(crate) async fn json(mesh: &Mesh, arguments: &[&str]) -> Value {
    let output = mesh.run(&[arguments, &["--output", "json"]].concat()).await;
    assert!(output.status.success(), "{arguments:?}: {output:?}");
    serde_json::from_slice(&output.stdout).unwrap()
}

/// The codes of the findings of `/readyz`.
pub(crate) async fn codes(mesh: &Mesh) -> Vec<String> {
    let readyz = mesh.readyz().await;
    let findings = readyz["findings"].as_array().unwrap().iter();
    findings.map(|finding| finding["code"].as_str().unwrap().to_owned()).collect()
}
