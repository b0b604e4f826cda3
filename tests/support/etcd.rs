//! etcd with one member or three, on its own addresses.

use std::net::SocketAddr;
use std::path::{Path, PathBuf};
use std::process::Output;

use fs_err as fs;
use rcgen::{BasicConstraints, CertificateParams, DnType, IsCa, Issuer, KeyPair, SanType};
use rustix::process::Signal;
use tempfile::TempDir;
use tokio::process::Command;

use crate::addresses::Loopback;
use crate::eventually::eventually;
use crate::process::{Child, Launcher};
use crate::programs::require_etcd;

/// A running etcd. Dropping this value stops its members.
#[derive(Debug)]
pub struct Etcd {
    program: PathBuf,
    /// Before the folder, so that the members end before it is removed.
    members: Vec<Option<Child>>,
    loopback: Loopback,
    /// The way to start each member, if they run on different machines.
    launchers: Vec<Launcher>,
    folder: TempDir,
    has_tls: bool,
    /// The largest request in bytes, if not etcd's default.
    max_request_bytes: Option<u32>,
}

/// The user of a client over TLS: the name in the certificate.
const ROOT: &str = "root";

/// The user of the control planes of a mesh with its store in etcd.
const STORE: &str = "store";

/// The user of the control planes of the mesh `other`.
const OTHER_STORE: &str = "other-store";

impl Etcd {
    /// Starts one member without access control. `None` skips the test because etcd is missing.
    pub async fn start() -> Option<Self> {
        let mut etcd = Self::new(1, false)?;
        etcd.start_member(0);
        etcd.ready().await;
        Some(etcd)
    }

    /// Starts one member that rejects requests above this size.
    pub async fn start_with_request_limit(bytes: u32) -> Option<Self> {
        let mut etcd = Self { max_request_bytes: Some(bytes), ..Self::new(1, false)? };
        etcd.start_member(0);
        etcd.ready().await;
        Some(etcd)
    }

    /// Prepares one member without starting it.
    pub fn stopped() -> Option<Self> {
        Self::new(1, false)
    }

    /// Starts three members with mutual TLS. Users are the names in certificates: `root` may do
    /// everything, `mesh` has the rights that policy needs, `store` those of the store of a mesh, `other-store` those of
    /// the mesh `other`, and `stranger` has none.
    pub async fn start_three() -> Option<Self> {
        Self::new(3, true)?.start_with_users().await
    }

    /// The same with members on different machines, which write to the disk before they answer.
    pub async fn start_three_on(network: Loopback, launchers: [Launcher; 3]) -> Option<Self> {
        let mut etcd = Self::new(3, true)?;
        etcd.loopback = network;
        etcd.launchers = launchers.into();
        etcd.make_certificates();
        etcd.start_with_users().await
    }

    async fn start_with_users(mut self) -> Option<Self> {
        let etcd = &mut self;
        for member in 0..3 {
            etcd.start_member(member);
        }
        etcd.ready().await;
        for role in ["policy", "state", "leases"] {
            etcd.ctl(&["role", "add", role]).await;
            let grant = ["role", "grant-permission", role, "--prefix=true", "readwrite"];
            let prefix = format!("/ironmesh/default/{role}/");
            etcd.ctl(&[&grant[..], &[&prefix]].concat()).await;
        }
        etcd.ctl(&["role", "add", "other"]).await;
        for keys in ["state", "leases"] {
            let prefix = format!("/ironmesh/other/{keys}/");
            let grant = ["role", "grant-permission", "other", "--prefix=true", "readwrite"];
            etcd.ctl(&[&grant[..], &[&prefix]].concat()).await;
        }
        let users: [(&str, &[&str]); 5] = [
            (ROOT, &["root"]),
            ("mesh", &["policy"]),
            (STORE, &["state", "leases"]),
            (OTHER_STORE, &["other"]),
            ("stranger", &[]),
        ];
        for (user, roles) in users {
            etcd.ctl(&["user", "add", user, "--no-password"]).await;
            for role in roles {
                etcd.ctl(&["user", "grant-role", user, role]).await;
            }
        }
        etcd.ctl(&["auth", "enable"]).await;
        Some(self)
    }

    fn new(members: u8, has_tls: bool) -> Option<Self> {
        let etcd = Self {
            program: require_etcd()?,
            members: (0..members).map(|_| None).collect(),
            loopback: Loopback::claim(),
            launchers: Vec::new(),
            folder: tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap(),
            has_tls,
            max_request_bytes: None,
        };
        if has_tls {
            etcd.make_certificates();
        }
        Some(etcd)
    }

    /// Starts a stopped member with its data.
    pub fn start_member(&mut self, member: u8) {
        let client = self.endpoint(member);
        let count = u8::try_from(self.members.len()).unwrap();
        let all: Vec<_> =
            (0..count).map(|member| format!("m{member}={}", self.peer(member))).collect();
        let launcher = self.launchers.get(usize::from(member)).cloned();
        let mut command = launcher.clone().unwrap_or_default().command(&self.program);
        command.current_dir(self.folder.path());
        command.args(["--name", &format!("m{member}"), "--data-dir", &format!("data{member}")]);
        command.args(["--listen-peer-urls", &self.peer(member)]);
        command.args(["--initial-advertise-peer-urls", &self.peer(member)]);
        command.args(["--listen-client-urls", &client, "--advertise-client-urls", &client]);
        command.args(["--initial-cluster", &all.join(",")]);
        if launcher.is_none() {
            // These tests are not about disks, which they share with others.
            command.arg("--unsafe-no-fsync");
        }
        if let Some(bytes) = self.max_request_bytes {
            command.args(["--max-request-bytes", &bytes.to_string()]);
        }
        if self.has_tls {
            for kind in ["", "peer-"] {
                command.args([&format!("--{kind}trusted-ca-file"), "ca.pem"]);
                command.args([&format!("--{kind}cert-file"), &format!("m{member}.pem")]);
                command.args([&format!("--{kind}key-file"), &format!("m{member}.key")]);
                command.arg(format!("--{kind}client-cert-auth"));
            }
        }
        let name = format!("etcd member {member}");
        let log = self.folder.path().join(format!("m{member}.log"));
        let slot = self.members.get_mut(usize::from(member)).unwrap();
        *slot = Some(Child::start(&name, &mut command, &log));
    }

    /// Waits until the running members accept writes.
    pub async fn ready(&mut self) {
        for member in self.members.iter_mut().flatten() {
            member.assert_running();
        }
        eventually("etcd to accept writes", async || {
            match self.try_ctl(&["put", "/is-ready", "yes"]).await {
                output if output.status.success() => Ok(()),
                output => Err(String::from_utf8_lossy(&output.stderr).into_owned()),
            }
        })
        .await;
    }

    /// Kills a member with SIGKILL and waits for its end.
    pub async fn kill(&mut self, member: u8) {
        let slot = self.members.get_mut(usize::from(member)).unwrap();
        slot.take().expect("the member runs").kill_hard().await;
    }

    /// Sends a running member a signal.
    pub fn signal(&self, member: u8, signal: Signal) {
        self.member(member).expect("the member runs").signal(signal);
    }

    /// The process id of a running member.
    pub fn id(&self, member: u8) -> Option<u32> {
        self.member(member)?.id()
    }

    fn member(&self, member: u8) -> Option<&Child> {
        self.members.get(usize::from(member))?.as_ref()
    }

    /// Restores a stopped member from a snapshot of `etcdctl`.
    pub async fn restore(&self, member: u8, snapshot: &Path) {
        let name = format!("m{member}");
        let data = self.file(&format!("data{member}"));
        fs::remove_dir_all(&data).unwrap();
        let (peer, data) = (self.peer(member), data.display().to_string());
        let cluster = format!("{name}={peer}");
        let snapshot = snapshot.display().to_string();
        self.ctl(
            &[
                &["snapshot", "restore", &snapshot, "--name", &name, "--data-dir", &data][..],
                &["--initial-cluster", &cluster, "--initial-advertise-peer-urls", &peer],
            ]
            .concat(),
        )
        .await;
    }

    /// The number of the leader.
    pub async fn leader(&self) -> u8 {
        let endpoints = (0..3).map(|member| self.endpoint(member)).collect::<Vec<_>>().join(",");
        let status =
            self.ctl(&["endpoint", "status", "--write-out=json", "--endpoints", &endpoints]).await;
        let status: serde_json::Value = serde_json::from_str(&status).unwrap();
        let leads = |status: &&serde_json::Value| {
            status.pointer("/Status/leader") == status.pointer("/Status/header/member_id")
        };
        let leader = status.as_array().unwrap().iter().find(leads).expect("one leads");
        let endpoint = leader.get("Endpoint").unwrap().as_str().unwrap();
        (0..3).find(|member| self.endpoint(*member) == endpoint).unwrap()
    }

    /// The client URL of a member.
    pub fn endpoint(&self, member: u8) -> String {
        format!("{}://{}", self.scheme(), self.socket(member))
    }

    /// The peer URL of a member.
    fn peer(&self, member: u8) -> String {
        format!("{}://{}", self.scheme(), self.loopback.socket(member + 1, 2380))
    }

    fn scheme(&self) -> &'static str {
        if self.has_tls { "https" } else { "http" }
    }

    /// The client address of a member.
    pub fn socket(&self, member: u8) -> SocketAddr {
        self.loopback.socket(member + 1, 2379)
    }

    /// A file of this etcd.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// The settings by which `user` reads policy from this etcd. Without TLS the user does not
    /// matter.
    pub fn settings(&self, user: &str) -> String {
        self.section("policy.etcd", user)
    }

    /// The settings of a control plane of a mesh with its store in this etcd.
    pub fn store_settings(&self) -> String {
        format!("[store]\nkind = \"etcd\"\n{}", self.section("store.etcd", STORE))
    }

    /// The same for a control plane that has its store and its policy in this etcd, and uses other endpoints, such as
    /// those of a relay.
    pub fn settings_by(&self, endpoints: &[String]) -> String {
        let store = self.section_by("store.etcd", STORE, endpoints);
        let policy = self.section_by("policy.etcd", "mesh", endpoints);
        format!("[store]\nkind = \"etcd\"\n{store}{policy}")
    }

    /// The same for the mesh `other`, whose user may not use the keys of a different mesh.
    pub fn other_store_settings(&self) -> String {
        format!("[store]\nkind = \"etcd\"\n{}", self.section("store.etcd", OTHER_STORE))
    }

    fn section(&self, section: &str, user: &str) -> String {
        let count = u8::try_from(self.members.len()).unwrap();
        let endpoints: Vec<_> = (0..count).map(|member| self.endpoint(member)).collect();
        self.section_by(section, user, &endpoints)
    }

    fn section_by(&self, section: &str, user: &str, endpoints: &[String]) -> String {
        let settings = format!("[{section}]\nendpoints = {endpoints:?}\n");
        if !self.has_tls {
            return settings;
        }
        let [ca, certificate, key] =
            ["ca.pem".to_owned(), format!("{user}.pem"), format!("{user}.key")]
                .map(|name| self.file(&name).display().to_string());
        format!("{settings}ca = {ca:?}\ncertificate = {certificate:?}\nkey = {key:?}\n")
    }

    /// Runs etcdctl as `root` and returns its output.
    pub async fn ctl(&self, arguments: &[&str]) -> String {
        let output = self.try_ctl(arguments).await;
        assert!(output.status.success(), "etcdctl {arguments:?}: {output:?}");
        String::from_utf8(output.stdout).unwrap()
    }

    async fn try_ctl(&self, arguments: &[&str]) -> Output {
        let running = (0_u8..).zip(&self.members).filter(|(_, child)| child.is_some());
        let endpoints: Vec<_> = running.map(|(member, _)| self.endpoint(member)).collect();
        let mut command = Command::new(self.program.with_file_name("etcdctl"));
        command.env("ETCDCTL_API", "3").kill_on_drop(true);
        if !arguments.contains(&"--endpoints") {
            command.args(["--endpoints", &endpoints.join(",")]);
        }
        if self.has_tls {
            command.arg("--cacert").arg(self.file("ca.pem"));
            command.arg("--cert").arg(self.file("root.pem"));
            command.arg("--key").arg(self.file("root.key"));
        }
        command.args(arguments).output().await.unwrap()
    }

    /// The keys that begin with `prefix`.
    pub async fn keys(&self, prefix: &str) -> Vec<String> {
        let keys = self.ctl(&["get", "--prefix", "--keys-only", prefix]).await;
        keys.lines().filter(|line| !line.is_empty()).map(str::to_owned).collect()
    }

    /// Creates an authority, and the certificates of members and users.
    fn make_certificates(&self) {
        let key = KeyPair::generate().unwrap();
        let mut ca = CertificateParams::default();
        ca.distinguished_name.push(DnType::CommonName, "etcd");
        ca.is_ca = IsCa::Ca(BasicConstraints::Unconstrained);
        let pem = ca.self_signed(&key).unwrap().pem();
        fs::write(self.file("ca.pem"), pem).unwrap();
        let issuer = Issuer::new(ca, key);
        for member in 0..3 {
            // Its listen address, and the source address of its connections to the others.
            let addresses = [self.loopback.host(member + 1), [127, 0, 0, 1].into()];
            let names = addresses.map(SanType::IpAddress).into();
            issue(self.folder.path(), &format!("m{member}"), names, &issuer);
        }
        for user in [ROOT, "mesh", STORE, OTHER_STORE, "stranger", "nobody"] {
            let names = vec![SanType::DnsName(user.try_into().unwrap())];
            issue(self.folder.path(), user, names, &issuer);
        }
    }
}

fn issue(folder: &Path, name: &str, alternatives: Vec<SanType>, issuer: &Issuer<'_, KeyPair>) {
    let key = KeyPair::generate().unwrap();
    let mut leaf = CertificateParams::default();
    leaf.distinguished_name.push(DnType::CommonName, name);
    leaf.subject_alt_names = alternatives;
    let pem = leaf.signed_by(&key, issuer).unwrap().pem();
    fs::write(folder.join(format!("{name}.pem")), pem).unwrap();
    fs::write(folder.join(format!("{name}.key")), key.serialize_pem()).unwrap();
}
