//! `[consul]`: how the control plane reaches Consul to discover endpoints. Policy decides whether it queries
//! Consul.

use std::path::PathBuf;
use std::time::Duration;

use ironmesh_catalog::Finding;

use super::read_path;
use super::servers::{Servers, Tls};
use ironmesh_config_language::codes;
use ironmesh_config_language::duration;
use ironmesh_config_language::limits::CONSUL_NAME;
use ironmesh_config_language::table::{FindingReported, Table, Value};

const CONSUL: Servers = Servers {
    who: "Consul",
    key: "agents",
    example: "https://consul-1.example.com:8501",
    secret: "token",
};

/// How the control plane reaches Consul. Paths are as written, and no value is a secret.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ConsulSettings {
    /// The agents or servers, any of which answers queries: `http://host:port` or `https://host:port`, all
    /// with one scheme; at least one.
    pub agents: Vec<String>,
    /// The file of the ACL token that the control plane presents to Consul.
    pub token_file: Option<PathBuf>,
    /// The file of the authorities that issue the agents' certificates. It is set exactly if the agents are
    /// `https`.
    pub ca: Option<PathBuf>,
    /// The files of the certificate and key that the control plane presents to the agents.
    pub identity: Option<(PathBuf, PathBuf)>,
    /// The default datacenter of queries in policy; if unset, that of the agent.
    pub datacenter: Option<String>,
    /// The default namespace of Consul Enterprise; if unset, that of the agent.
    pub namespace: Option<String>,
    /// The default partition of Consul Enterprise; if unset, that of the agent.
    pub partition: Option<String>,
    /// Whether an instance with the tag `ironmesh-service=NS/NAME` is an endpoint of that service, if policy
    /// defines it.
    pub join_by_tag: bool,
    /// The largest lag behind its leader of a server that answers.
    pub max_staleness: Duration,
    /// The most connections at once, to all agents together.
    pub max_connections: u32,
    /// The longest time for which a blocking query waits at the agent.
    pub wait: Duration,
    /// The keys of node metadata that name the locality.
    pub locality: LocalityKeySettings,
}

/// The keys of a Consul node's metadata that name its locality.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalityKeySettings {
    /// The key of the region.
    pub region: String,
    /// The key of the zone.
    pub zone: String,
    /// The key of the sub-zone.
    pub sub_zone: String,
}

impl Default for ConsulSettings {
    fn default() -> Self {
        Self {
            agents: vec!["http://127.0.0.1:8500".to_owned()],
            token_file: None,
            ca: None,
            identity: None,
            datacenter: None,
            namespace: None,
            partition: None,
            join_by_tag: false,
            max_staleness: Duration::from_secs(10),
            // An agent rejects more than 200 connections of one client, and serves other clients on its
            // machine, too (`limits.http_max_conns_per_client`).
            max_connections: 100,
            wait: Duration::from_secs(60),
            locality: LocalityKeySettings::default(),
        }
    }
}

impl Default for LocalityKeySettings {
    fn default() -> Self {
        let [region, zone, sub_zone] = ["region", "zone", "sub_zone"].map(str::to_owned);
        Self { region, zone, sub_zone }
    }
}

pub(super) fn read(value: Value<'_>) -> Result<ConsulSettings, FindingReported> {
    let mut table = value.table("`consul`")?;
    let agents = table.optional("agents", |value| {
        value.at_least_one("`agents` must list one at least", |value| CONSUL.read_url(value))
    });
    let token = reject_token(&mut table);
    let token_file = table.optional("token_file", read_path);
    let tls = Tls::read(&mut table);
    let insecure = table.optional("insecure", Value::boolean);
    let datacenter = table.optional("datacenter", read_name);
    let namespace = table.optional("namespace", read_name);
    let partition = table.optional("partition", read_name);
    let join_by_tag = table.optional("join_by_tag", Value::boolean);
    // Consul itself limits a wait to ten minutes.
    let [second, ten_minutes] = [1, 600].map(Duration::from_secs);
    let max_staleness = table
        .optional("max_staleness", |value| duration::read(value, &(Duration::ZERO..=ten_minutes)));
    let max_connections =
        table.optional("max_connections", |value| value.integer(codes::INVALID_VALUE, 1..=10_000));
    let wait = table.optional("wait", |value| duration::read(value, &(second..=ten_minutes)));
    let locality = table.optional("locality", read_locality);
    table.finish();
    token?;
    let (agents, token_file, tls) = (agents?, token_file?, tls?);
    let insecure = insecure?.unwrap_or(false);
    let default = ConsulSettings::default();
    let agents = match agents {
        Some(agents) => CONSUL.urls(value, agents, &tls, token_file.is_some(), insecure)?,
        None if tls.ca.is_some() || tls.identity.is_some() => {
            let message = "certificates need `agents` of `https`";
            let finding = value.error(codes::MISSING_KEY, message).label("no `agents` in here");
            return Err(value
                .report(finding.help(format!("name them: `agents = [\"{}\"]`", CONSUL.example))));
        }
        None => default.agents,
    };
    Ok(ConsulSettings {
        agents,
        token_file,
        ca: tls.ca,
        identity: tls.identity,
        datacenter: datacenter?,
        namespace: namespace?,
        partition: partition?,
        join_by_tag: join_by_tag?.unwrap_or(default.join_by_tag),
        max_staleness: max_staleness?.unwrap_or(default.max_staleness),
        max_connections: max_connections?.unwrap_or(default.max_connections),
        wait: wait?.unwrap_or(default.wait),
        locality: locality?.unwrap_or(default.locality),
    })
}

/// Rejects a token in the settings: a token is a secret, and belongs into a file of its own.
fn reject_token(table: &mut Table<'_>) -> Result<(), FindingReported> {
    let Some(spot) = table.rejected_key("token") else { return Ok(()) };
    let message = format!("the settings hold a secret, `token` at {spot}");
    // The finding has no spot: its line contains the secret, and findings are logged.
    let finding = Finding::error(codes::INVALID_VALUE, None, message);
    let help = "write it to a file that the control plane alone may read, and name that: \
                `token_file = \"/etc/ironmesh/consul-token\"`";
    Err(table.report(finding.help(help)))
}

fn read_name(value: Value<'_>) -> Result<String, FindingReported> {
    value.text(CONSUL_NAME).map(str::to_owned)
}

fn read_locality(value: Value<'_>) -> Result<LocalityKeySettings, FindingReported> {
    let mut table = value.table("`consul.locality`")?;
    let region = table.optional("region", read_name);
    let zone = table.optional("zone", read_name);
    let sub_zone = table.optional("sub_zone", read_name);
    table.finish();
    let default = LocalityKeySettings::default();
    Ok(LocalityKeySettings {
        region: region?.unwrap_or(default.region),
        zone: zone?.unwrap_or(default.zone),
        sub_zone: sub_zone?.unwrap_or(default.sub_zone),
    })
}
