//! The options of the Consul provider.

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

/// The agents, the credentials and the limits of the provider. The defaults fit a local agent.
#[derive(Debug, Clone)]
pub struct ConsulOptions {
    /// The agents or servers, as URLs (`https://10.0.0.1:8501`). The provider queries the first one
    /// that answers, and changes to the next one when it fails.
    pub agents: Vec<String>,
    /// The file with the ACL token. It is read again when it changes.
    pub token_file: Option<PathBuf>,
    /// The CA certificates (PEM) of the agents; those of the system by default. This file and the
    /// next two are read again when they change; invalid files change nothing.
    pub ca: Option<PathBuf>,
    /// The client certificate (PEM). It requires [`Self::key`].
    pub certificate: Option<PathBuf>,
    /// The private key (PEM) of the client certificate.
    pub key: Option<PathBuf>,
    /// The datacenter of queries that name none; that of the agent by default.
    pub datacenter: Option<Arc<str>>,
    /// The Consul namespace (Enterprise) of queries that name none.
    pub namespace: Option<Arc<str>>,
    /// The Consul partition (Enterprise) of queries that name none.
    pub partition: Option<Arc<str>>,
    /// Whether instances with the tag `ironmesh-service=NS/NAME` are endpoints of that service.
    pub join_by_tag: bool,
    /// The longest time for which the answering server may have had no contact with its leader.
    pub max_staleness: Duration,
    /// The wait of a blocking query. Consul accepts at most 10 minutes.
    pub wait: Duration,
    /// The keys of a node's meta that hold its locality.
    pub locality: LocalityKeys,
    /// The number of connections over plain HTTP, where each query takes one. Agents reject more
    /// than `http_max_conns_per_client` (200 by default) of one client.
    pub max_connections: usize,
}

/// The keys of a node's meta that hold its locality.
#[derive(Debug, Clone)]
pub struct LocalityKeys {
    /// The key of the region.
    pub region: Arc<str>,
    /// The key of the zone.
    pub zone: Arc<str>,
    /// The key of the sub-zone.
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
