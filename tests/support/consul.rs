//! A real Consul on its own addresses: one agent, or three servers and one agent with TLS, ACLs and
//! encrypted gossip.

use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use reqwest::Method;
use serde_json::{Value, json};
use tempfile::TempDir;
use tokio::process::Command;

use crate::process::Child;
use crate::programs::require_consul;
use crate::tls::plain_http_client;
use crate::{Loopback, eventually};

/// A running Consul. Dropping this value stops its agents.
#[derive(Debug)]
pub struct Consul {
    program: PathBuf,
    /// Before the folder, so that the agents end before it is removed.
    agents: Vec<Option<Child>>,
    loopback: Loopback,
    folder: TempDir,
    kind: Setup,
    http: reqwest::Client,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setup {
    /// One agent in memory, without ACLs.
    Dev,
    /// One agent in memory that denies by default.
    DevWithTokens,
    /// Three servers and one agent.
    Cluster,
}

/// The management token, where ACLs are enabled.
pub const MASTER_TOKEN: &str = "5d1a7b7e-2f6b-4d6f-9a43-6d7a3c1f0b11";
/// Longer than servers delay a request without a leader.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(10);
/// The ACL rules that the mesh needs.
pub const READ_ALL_RULES: &str =
    r#"service_prefix "" { policy = "read" } node_prefix "" { policy = "read" }"#;
/// The number of the agent of a cluster that is not a server.
pub const AGENT: u8 = 3;

impl Consul {
    /// Starts one agent in memory: after a restart it is empty. `None` skips the test because
    /// Consul is missing.
    pub async fn dev() -> Option<Self> {
        Self::start_all(Setup::Dev, 1).await
    }

    /// Starts one agent with ACLs: callers without a token see nothing.
    pub async fn dev_with_tokens() -> Option<Self> {
        Self::start_all(Setup::DevWithTokens, 1).await
    }

    /// Starts three servers (0 to 2) and an agent ([`AGENT`]) with mutual TLS and ACLs.
    pub async fn cluster() -> Option<Self> {
        Self::start_all(Setup::Cluster, 4).await
    }

    async fn start_all(kind: Setup, count: u8) -> Option<Self> {
        let program = require_consul()?;
        let folder = tempfile::Builder::new().prefix("ironmesh-test-").tempdir().unwrap();
        let agents = (0..count).map(|_| None).collect();
        let http = plain_http_client();
        let mut consul = Self { program, agents, loopback: Loopback::claim(), folder, kind, http };
        if kind == Setup::Cluster {
            consul.make_certificates().await;
        }
        for agent in 0..count {
            consul.start(agent);
        }
        consul.ready().await;
        Some(consul)
    }

    /// Starts an agent that is not running.
    pub fn start(&mut self, agent: u8) {
        let name = format!("agent{agent}");
        let config = self.file(&format!("{name}.json"));
        fs::write(&config, self.config(agent).to_string()).unwrap();
        let mut command = Command::new(&self.program);
        command.current_dir(self.folder.path()).arg("agent").arg("-config-file").arg(&config);
        if self.kind != Setup::Cluster {
            command.arg("-dev");
        }
        let log = self.file(&format!("{name}.log"));
        let slot = self.agents.get_mut(usize::from(agent)).unwrap();
        *slot = Some(Child::start(&format!("consul {name}"), &mut command, &log));
    }

    /// Kills an agent with SIGKILL and waits for its end.
    pub async fn kill(&mut self, agent: u8) {
        let slot = self.agents.get_mut(usize::from(agent)).unwrap();
        slot.take().expect("the agent runs").kill_hard().await;
    }

    /// Waits until all running agents know a leader and all running servers.
    pub async fn ready(&mut self) {
        let running: Vec<u8> =
            (0..).zip(&self.agents).filter(|(_, child)| child.is_some()).map(|(n, _)| n).collect();
        let servers = running.iter().filter(|agent| **agent != AGENT).count();
        for agent in self.agents.iter_mut().flatten() {
            agent.assert_running();
        }
        for agent in running {
            eventually("Consul to know its servers", async || {
                let known = self.try_get(agent, "health/service/consul").await?;
                let count = known.as_array().map_or(0, Vec::len);
                if count >= servers { Ok(()) } else { Err(format!("{count} of {servers}")) }
            })
            .await;
        }
    }

    /// The URL at which the provider queries an agent.
    pub fn url(&self, agent: u8) -> String {
        match self.kind {
            Setup::Cluster => format!("https://{}", self.loopback.socket(agent + 1, 8501)),
            Setup::Dev | Setup::DevWithTokens => self.plain_url(agent),
        }
    }

    /// The URL at which tests query an agent.
    pub fn plain_url(&self, agent: u8) -> String {
        format!("http://{}", self.loopback.socket(agent + 1, 8500))
    }

    /// A file of this Consul. A cluster has `ca.pem`, `client.pem` and `client.key`.
    pub fn file(&self, name: &str) -> PathBuf {
        self.folder.path().join(name)
    }

    /// A free address of this Consul's network, for a proxy in front of an agent.
    pub fn spare_address(&self) -> std::net::IpAddr {
        self.loopback.host(100)
    }

    /// Registers an instance of a service on a node without an agent.
    pub async fn register(&self, service: &str, id: &str, address: &str) {
        self.register_as(json!({
            "Node": format!("node-{id}"), "Address": "10.255.0.1",
            "Service": { "ID": id, "Service": service, "Address": address, "Port": 8080 }
        }))
        .await;
    }

    /// Registers the given body with `/v1/catalog/register`.
    pub async fn register_as(&self, registration: Value) {
        self.put("catalog/register", registration).await;
    }

    /// Deregisters an instance that [`Self::register`] registered.
    pub async fn deregister(&self, id: &str) {
        let what = json!({ "Node": format!("node-{id}"), "ServiceID": id });
        self.put("catalog/deregister", what).await;
    }

    /// Creates a token with these rules.
    pub async fn token(&self, name: &str, rules: &str) -> Token {
        self.put("acl/policy", json!({ "Name": name, "Rules": rules })).await;
        let made = self.put("acl/token", json!({ "Policies": [{ "Name": name }] })).await;
        let text = |key: &str| made.get(key).and_then(Value::as_str).unwrap().to_owned();
        Token { accessor: text("AccessorID"), secret: text("SecretID") }
    }

    /// Replaces the rules of a policy of [`Self::token`].
    pub async fn change_policy(&self, name: &str, rules: &str) {
        let policies = self.try_get(self.running_agent(), "acl/policies").await.unwrap();
        let is = |policy: &&Value| policy.get("Name").and_then(Value::as_str) == Some(name);
        let policy = policies.as_array().unwrap().iter().find(is).unwrap();
        let id = policy.get("ID").and_then(Value::as_str).unwrap();
        self.put(&format!("acl/policy/{id}"), json!({ "Name": name, "Rules": rules })).await;
    }

    /// The number of connections to the address at which the provider queries an agent. With one
    /// agent, the test itself adds one connection.
    pub fn connections(&self, agent: u8) -> usize {
        let std::net::IpAddr::V4(host) = self.loopback.host(agent + 1) else { return 0 };
        let port = if self.kind == Setup::Cluster { 8501 } else { 8500 };
        // The kernel's format: the address in the byte order of this machine, and 01 for
        // established.
        let local = format!("{:08X}:{:04X}", u32::from_ne_bytes(host.octets()), port);
        let table = fs::read_to_string("/proc/self/net/tcp").unwrap();
        let is_one = |line: &&str| {
            let fields: Vec<_> = line.split_whitespace().collect();
            fields.get(1) == Some(&local.as_str()) && fields.get(3) == Some(&"01")
        };
        table.lines().filter(is_one).count()
    }

    /// Revokes a token.
    pub async fn revoke(&self, token: &Token) {
        let path = format!("acl/token/{}", token.accessor);
        self.request(self.running_agent(), Method::DELETE, &path, None).await.unwrap();
    }

    /// The number of the leader.
    pub async fn leader(&self) -> u8 {
        eventually("a leader", async || {
            let leader = self.try_get(self.running_agent(), "status/leader").await?;
            let leader = leader.as_str().unwrap_or_default().to_owned();
            let is = |agent: &u8| leader == self.loopback.socket(agent + 1, 8300).to_string();
            (0..AGENT).find(is).ok_or(leader)
        })
        .await
    }

    /// Writes with the management token, and retries until Consul accepts, which needs a leader.
    pub async fn put(&self, path: &str, body: Value) -> Value {
        eventually(&format!("Consul to accept {path}"), async || {
            self.request(self.running_agent(), Method::PUT, path, Some(&body)).await
        })
        .await
    }

    async fn try_get(&self, agent: u8, path: &str) -> Result<Value, String> {
        self.request(agent, Method::GET, path, None).await
    }

    async fn request(
        &self,
        agent: u8,
        method: Method,
        path: &str,
        body: Option<&Value>,
    ) -> Result<Value, String> {
        let url = format!("{}/v1/{path}", self.plain_url(agent));
        let mut request = self
            .http
            .request(method, url)
            .timeout(REQUEST_TIMEOUT)
            .header("X-Consul-Token", MASTER_TOKEN);
        if let Some(body) = body {
            request = request.body(body.to_string());
        }
        let answer = request.send().await.map_err(|error| format!("{error:?}"))?;
        let status = answer.status();
        let text = answer.text().await.map_err(|error| format!("{error:?}"))?;
        if status.is_success() && text.is_empty() {
            Ok(Value::Null)
        } else if status.is_success() {
            serde_json::from_str(&text).map_err(|error| format!("{text}: {error}"))
        } else {
            Err(format!("{status}: {text}"))
        }
    }

    /// The number of a running agent.
    fn running_agent(&self) -> u8 {
        (0..).zip(&self.agents).find(|(_, child)| child.is_some()).map(|(n, _)| n).unwrap()
    }

    fn config(&self, agent: u8) -> Value {
        let host = self.loopback.host(agent + 1);
        let mut config = json!({
            "node_name": format!("agent{agent}"),
            "bind_addr": host, "client_addr": host.to_string(),
            "ports": {
                "http": 8500, "https": if self.kind == Setup::Cluster { 8501 } else { -1 }, "grpc": -1, "dns": -1, "server": 8300,
                "serf_lan": 8301, "serf_wan": -1
            },
            "disable_update_check": true, "log_level": "warn",
            "limits": { "http_max_conns_per_client": 500 }
        });
        let mut set = |name: &str, value: Value| {
            config.as_object_mut().unwrap().insert(name.to_owned(), value);
        };
        if self.kind != Setup::Dev {
            set(
                "acl",
                json!({
                    "enabled": true, "default_policy": "deny",
                    // Short, so that revocations take effect soon: agents cache tokens for 30 s by
                    // default.
                    "token_ttl": "200ms", "policy_ttl": "200ms",
                    "tokens": { "master": MASTER_TOKEN, "agent": MASTER_TOKEN }
                }),
            );
        }
        if self.kind == Setup::Cluster {
            let servers: Vec<_> =
                (0..AGENT).map(|n| self.loopback.socket(n + 1, 8301).to_string()).collect();
            let file = |name: &str| self.file(name).display().to_string();
            set("retry_join", json!(servers));
            set("retry_interval", json!("300ms"));
            set("data_dir", json!(file(&format!("data{agent}"))));
            let gossip = fs::read_to_string(self.file("gossip.key")).unwrap();
            set("encrypt", json!(gossip.trim()));
            set("ca_file", json!(file("ca.pem")));
            set("cert_file", json!(file(&format!("agent{agent}.pem"))));
            set("key_file", json!(file(&format!("agent{agent}.key"))));
            for name in ["verify_incoming", "verify_outgoing", "verify_server_hostname"] {
                set(name, json!(true));
            }
            if agent != AGENT {
                set("server", json!(true));
                set("bootstrap_expect", json!(3));
            }
            set("performance", json!({ "raft_multiplier": 1 }));
        }
        config
    }

    /// Creates the certificates with Consul's own commands, as operators do.
    async fn make_certificates(&self) {
        fs::write(self.file("gossip.key"), self.run(&["keygen"]).await).unwrap();
        self.run(&["tls", "ca", "create"]).await;
        self.rename("consul-agent-ca.pem", "ca.pem");
        self.rename("consul-agent-ca-key.pem", "ca.key");
        let authority = ["-ca=ca.pem", "-key=ca.key"];
        for agent in 0..=AGENT {
            let host = format!("-additional-ipaddress={}", self.loopback.host(agent + 1));
            let kind = if agent == AGENT { "client" } else { "server" };
            let flag = format!("-{kind}");
            self.run(&[&["tls", "cert", "create", &flag, &host], &authority[..]].concat()).await;
            self.rename(&format!("dc1-{kind}-consul-0.pem"), &format!("agent{agent}.pem"));
            self.rename(&format!("dc1-{kind}-consul-0-key.pem"), &format!("agent{agent}.key"));
        }
        self.run(&[&["tls", "cert", "create", "-client"], &authority[..]].concat()).await;
        self.rename("dc1-client-consul-0.pem", "client.pem");
        self.rename("dc1-client-consul-0-key.pem", "client.key");
    }

    /// Runs a command of Consul and returns its output.
    async fn run(&self, arguments: &[&str]) -> Vec<u8> {
        let mut command = Command::new(&self.program);
        command.current_dir(self.folder.path()).args(arguments).kill_on_drop(true);
        let output = command.output().await.unwrap();
        assert!(output.status.success(), "consul {arguments:?}: {output:?}");
        output.stdout
    }

    fn rename(&self, from: &str, to: &str) {
        let file = |name: &str| -> PathBuf { Path::new(self.folder.path()).join(name) };
        fs::rename(file(from), file(to)).unwrap();
    }
}

/// An ACL token.
#[derive(Debug, Clone)]
pub struct Token {
    /// The accessor id, by which operators refer to the token.
    pub accessor: String,
    /// The secret id, which authenticates the caller.
    pub secret: String,
}
