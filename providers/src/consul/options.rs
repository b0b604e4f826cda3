//! What the Consul provider is told when it starts.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// Whom the provider asks, as whom, and within which bounds. The defaults are those of a local agent.
#[derive(Debug, Clone)]
pub struct ConsulOptions {
    /// Agents or servers, as URLs (`https://10.0.0.1:8501`). The first that answers is asked; the next one
    /// when it no longer does.
    pub agents: Vec<String>,
    /// The file that holds the ACL token. It is read again when it changes.
    pub token_file: Option<PathBuf>,
    /// The certificates (PEM) below which those of the agents must be; what the system trusts where it is
    /// left out. This file and the next two are read again when they change; while they are not good, all
    /// stays as it was.
    pub ca: Option<PathBuf>,
    /// The certificate (PEM) that is shown to agents. Only together with [`Self::key`].
    pub certificate: Option<PathBuf>,
    /// The private key (PEM) of that.
    pub key: Option<PathBuf>,
    /// The datacenter that is asked where policy names none; that of the agent where it is left out.
    pub datacenter: Option<Arc<str>>,
    /// Consul's namespace (of its Enterprise edition), likewise.
    pub namespace: Option<Arc<str>>,
    /// Consul's partition (of its Enterprise edition), likewise.
    pub partition: Option<Arc<str>>,
    /// Whether instances with the tag `ironmesh-service=NS/NAME` are endpoints of that service.
    pub join_by_tag: bool,
    /// How long the server that answers may have been without word of its leader.
    pub max_staleness: Duration,
    /// How long a blocking query waits for a change. Consul takes 10 minutes at most.
    pub wait: Duration,
    /// In which entries of a node's meta its locality is.
    pub locality: LocalityKeys,
    /// How many connections there may be at once over plain HTTP, where each query takes one. Agents refuse
    /// more than `http_max_conns_per_client` (200 by default) of one client.
    pub max_connections: usize,
}

/// The names of the entries of a node's meta that say where it is.
#[derive(Debug, Clone)]
pub struct LocalityKeys {
    /// The region.
    pub region: Arc<str>,
    /// The zone.
    pub zone: Arc<str>,
    /// What is smaller than a zone.
    pub sub_zone: Arc<str>,
}

impl Default for LocalityKeys {
    fn default() -> Self {
        Self { region: "region".into(), zone: "zone".into(), sub_zone: "sub_zone".into() }
    }
}

impl Default for ConsulOptions {
    fn default() -> Self {
        Self {
            agents: vec!["http://127.0.0.1:8500".to_owned()],
            token_file: None,
            ca: None,
            certificate: None,
            key: None,
            datacenter: None,
            namespace: None,
            partition: None,
            join_by_tag: false,
            max_staleness: Duration::from_secs(10),
            wait: Duration::from_secs(60),
            locality: LocalityKeys::default(),
            max_connections: 100,
        }
    }
}
