//! A real Consul on this machine, with a catalog of any size. The generator queries it, too: Consul answers no client
//! earlier than the generator.

use std::net::Ipv4Addr;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::str::FromStr;
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use serde_json::{Value, json};
use tokio::io::{AsyncReadExt, AsyncWriteExt};
use tokio::net::TcpStream;
use tokio::process::{Child, Command};
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep, timeout};

/// The numbers of services and instances in Consul.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Catalog {
    /// The number of services.
    pub services: usize,
    /// The number of instances of each service.
    pub instances: usize,
}

/// The address of an instance, and whether its check passes.
pub(crate) type Instance = (Ipv4Addr, bool);

/// A Consul agent in development mode, without persistent state. Dropping it ends the agent.
#[derive(Debug)]
pub(crate) struct Consul {
    child: Child,
    host: Ipv4Addr,
    log: PathBuf,
    /// The time limit of an answer.
    patience: Duration,
}

/// An answer of Consul.
#[derive(Debug)]
pub(crate) struct ConsulResponse {
    /// Its `X-Consul-Index`.
    pub(crate) index: u64,
    pub(crate) body: Vec<u8>,
    /// The time at which it was complete.
    pub(crate) at: Instant,
}

impl FromStr for Catalog {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let parts = text.split_once('x');
        let numbers = parts.and_then(|(s, i)| s.parse().ok().zip(i.parse().ok()));
        let (services, instances) = numbers.ok_or("expected SERVICESxINSTANCES: `1000x100`")?;
        if !(2..=5_000).contains(&services) || !(3..=200).contains(&instances) {
            return Err("services are 2 to 5000, and instances 3 to 200".to_owned());
        }
        Ok(Self { services, instances })
    }
}

impl std::fmt::Display for Catalog {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "a real Consul: {} services x {} instances", self.services, self.instances)
    }
}

impl Catalog {
    /// The name of a service, in Consul and in the mesh.
    pub(crate) fn service(number: usize) -> String {
        format!("service-{number:04}")
    }

    /// The node of an instance. Each node has as many instances as a service.
    fn node(self, service: usize, instance: usize) -> String {
        format!("node-{:04}", (service + instance) % self.services)
    }

    /// The operations that register the whole catalog, in the required order.
    fn operations(
        self,
        instance: impl Fn(usize, usize) -> Instance,
    ) -> impl Iterator<Item = Value> {
        let nodes = (0..self.services).map(move |number| {
            let node = json!({ "Node": self.node(number, 0), "Address": "10.255.0.1" });
            json!({ "Node": { "Verb": "set", "Node": node } })
        });
        let all = (0..self.services)
            .flat_map(move |service| (0..self.instances).map(move |number| (service, number)));
        let instances = all.flat_map(move |(service, number)| {
            let (address, passes) = instance(service, number);
            let id = instance_id(service, number);
            let what = json!({
                "ID": id, "Service": Self::service(service), "Address": address.to_string(),
                "Port": PORT, "Tags": ["v1"], "Meta": { "version": "1" },
            });
            let node = self.node(service, number);
            let instance = json!({ "Service": { "Verb": "set", "Node": node, "Service": what } });
            [instance, self.check(service, number, passes)]
        });
        nodes.chain(instances)
    }

    fn check(self, service: usize, instance: usize, passes: bool) -> Value {
        let id = instance_id(service, instance);
        json!({ "Check": { "Verb": "set", "Check": {
            "Node": self.node(service, instance), "CheckID": format!("alive:{id}"), "Name": "alive",
            "ServiceID": id, "Status": if passes { "passing" } else { "critical" },
        } } })
    }
}

impl Consul {
    /// Starts Consul with this connection limit, and waits until it has a leader.
    pub(crate) async fn start(
        program: &Path,
        folder: &Path,
        host: Ipv4Addr,
        connections: usize,
        patience: Duration,
    ) -> anyhow::Result<Self> {
        let (config, log) = (folder.join("consul.json"), folder.join("consul.log"));
        fs_err::write(&config, settings(host, connections).to_string())?;
        let output = fs_err::File::create(&log)?;
        let mut command = Command::new(program);
        command.args(["agent", "-dev", "-config-file"]).arg(&config);
        command.stdin(Stdio::null()).stdout(output.try_clone()?.into_parts().0);
        let child = command.stderr(output.into_parts().0).kill_on_drop(true).spawn();
        let child = child.with_context(|| format!("cannot run `{}`", program.display()))?;
        let consul = Self { child, host, log, patience };
        let deadline = Instant::now() + patience;
        while consul.query("consul", None).await.map_or(true, |answer| answer.body.len() < 10) {
            ensure!(Instant::now() < deadline, "Consul has no leader:\n{}", consul.log_tail());
            sleep(Duration::from_millis(20)).await;
        }
        Ok(consul)
    }

    /// The URL of its HTTP API.
    pub(crate) fn url(&self) -> String {
        format!("http://{}:{HTTP}", self.host)
    }

    pub(crate) fn id(&self) -> anyhow::Result<u32> {
        self.child.id().context("Consul is not running")
    }

    /// Registers all instances.
    pub(crate) async fn fill(
        &self,
        catalog: Catalog,
        instance: impl Fn(usize, usize) -> Instance,
    ) -> anyhow::Result<()> {
        let mut operations = catalog.operations(instance).peekable();
        while operations.peek().is_some() {
            let some: Vec<_> = operations.by_ref().take(OPERATIONS).collect();
            self.write(&some).await?;
        }
        Ok(())
    }

    /// Sets whether the check of an instance passes.
    pub(crate) async fn set(
        &self,
        catalog: Catalog,
        service: usize,
        instance: usize,
        passes: bool,
    ) -> anyhow::Result<()> {
        self.write(&[catalog.check(service, instance, passes)]).await
    }

    async fn write(&self, operations: &[Value]) -> anyhow::Result<()> {
        let body = serde_json::to_string(operations)?;
        self.exchange("PUT", "txn", &body, self.patience).await?;
        Ok(())
    }

    /// Queries the instances of a service: at once, or with a blocking query after an index.
    pub(crate) async fn query(
        &self,
        service: &str,
        after: Option<u64>,
    ) -> anyhow::Result<ConsulResponse> {
        let wait = after.map(|index| format!("&index={index}&wait=60s")).unwrap_or_default();
        let path = format!("health/service/{service}?stale{wait}");
        self.exchange("GET", &path, "", self.patience).await
    }

    /// Queries all services at once, and returns the number of received bytes.
    pub(crate) async fn query_all(self: &Arc<Self>, services: usize) -> anyhow::Result<u64> {
        let mut queries = JoinSet::new();
        for service in 0..services {
            let consul = Arc::clone(self);
            queries.spawn(async move { consul.query(&Catalog::service(service), None).await });
        }
        let mut bytes = 0;
        while let Some(answer) = queries.join_next().await {
            bytes += answer??.body.len() as u64;
        }
        Ok(bytes)
    }

    /// The number of queries answered since the start of Consul, without this one.
    pub(crate) async fn answered(&self) -> anyhow::Result<u64> {
        let path = "agent/metrics?format=prometheus";
        let answer = self.exchange("GET", path, "", self.patience).await?;
        let text = String::from_utf8_lossy(&answer.body);
        let counts = text.lines().filter_map(|line| {
            let (name, value) = line.split_once(' ')?;
            let is_count = name.starts_with("consul_http_GET_") && name.ends_with("_count");
            (is_count && !name.contains("_agent_metrics")).then(|| value.parse::<u64>().ok())?
        });
        Ok(counts.sum())
    }

    /// Sends one request on a new connection.
    async fn exchange(
        &self,
        method: &str,
        path: &str,
        body: &str,
        patience: Duration,
    ) -> anyhow::Result<ConsulResponse> {
        let request =
            format!("{method} /v1/{path} HTTP/1.0\r\ncontent-length: {}\r\n\r\n{body}", body.len());
        let exchange = async {
            let mut stream = TcpStream::connect((self.host, HTTP)).await?;
            stream.write_all(request.as_bytes()).await?;
            let mut answer = Vec::new();
            stream.read_to_end(&mut answer).await?;
            anyhow::Ok((answer, Instant::now()))
        };
        let exchanged = timeout(patience, exchange).await;
        let (mut answer, at) = exchanged.with_context(|| format!("no answer to {path}"))??;
        let end = answer.windows(4).position(|window| window == b"\r\n\r\n");
        let body = answer.split_off(end.context("the answer has no head")? + 4);
        let head = String::from_utf8_lossy(&answer).to_lowercase();
        let status = head.split(' ').nth(1).unwrap_or_default();
        let words = || String::from_utf8_lossy(body.get(..300).unwrap_or(&body)).into_owned();
        ensure!(status == "200", "Consul answers {status} to {path}: {}", words());
        let index = head.lines().find_map(|line| line.strip_prefix("x-consul-index: "));
        Ok(ConsulResponse { index: index.map_or(Ok(0), str::parse)?, body, at })
    }

    fn log_tail(&self) -> String {
        let log = fs_err::read_to_string(&self.log).unwrap_or_default();
        let lines: Vec<_> = log.lines().collect();
        lines.get(lines.len().saturating_sub(10)..).unwrap_or_default().join("\n")
    }
}

fn instance_id(service: usize, instance: usize) -> String {
    format!("{}-{instance:03}", Catalog::service(service))
}

fn settings(host: Ipv4Addr, connections: usize) -> Value {
    json!({
        "node_name": "consul", "bind_addr": host, "client_addr": host.to_string(),
        "ports": {
            "http": HTTP, "https": -1, "grpc": -1, "dns": -1, "server": 8300, "serf_lan": 8301,
            "serf_wan": -1
        },
        "disable_update_check": true, "log_level": "warn",
        // Over plain HTTP, each blocking query holds a connection.
        "limits": { "http_max_conns_per_client": connections },
        "telemetry": { "prometheus_retention_time": "1h", "disable_hostname": true },
    })
}

const HTTP: u16 = 8500;
/// The port of instances.
pub(crate) const PORT: u16 = 8080;
/// The most operations in one transaction.
const OPERATIONS: usize = 64;

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn catalog_shape_parses_and_generates_operations() {
        let catalog: Catalog = "4x3".parse().unwrap();
        let operations: Vec<_> =
            catalog.operations(|_, instance| (Ipv4Addr::LOCALHOST, instance > 0)).collect();
        assert_eq!(operations.len(), 4 + 4 * 3 * 2);
        let critical = operations.iter().filter(|one| one.to_string().contains("critical"));
        assert_eq!(critical.count(), 4);
        for bad in ["4", "1x3", "4x2", "4x201", "5001x3", "axb"] {
            assert!(bad.parse::<Catalog>().is_err(), "{bad}");
        }
    }
}
