//! The xDS server of one test.

use std::net::{IpAddr, Ipv4Addr, SocketAddr};
use std::sync::{Arc, Mutex};

use ironmesh_tests::eventually;
use ironmesh_tests::eventually::patience;
use ironmesh_xds_server::{
    Admission, ClientKey, ClientStatus, Hub, Limits, Peer, StreamRejection, serve,
};
use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
use ironmesh_xds_wire::{LoggedCall, Node, Resource, ResourceSet};
use rustls::ServerConfig;
use rustls::pki_types::CertificateDer;
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_util::sync::CancellationToken;

use ironmesh_tests::authority::{Identity, TestAuthority};

pub(crate) struct Server {
    pub(crate) authority: TestAuthority,
    pub(crate) address: SocketAddr,
    pub(crate) hub: Arc<Hub>,
    pub(crate) tls: watch::Sender<Arc<ServerConfig>>,
    pub(crate) shutdown: CancellationToken,
    /// The calls in clients' access logs.
    pub(crate) logged_calls: LoggedCalls,
    /// The source addresses of rejected streams.
    pub(crate) rejected_from: Arc<Mutex<Vec<SocketAddr>>>,
    serving: JoinHandle<()>,
}

impl Server {
    pub(crate) async fn start() -> Self {
        Self::start_with(Limits::default()).await
    }

    pub(crate) async fn start_with(limits: Limits) -> Self {
        Self::start_at(Ipv4Addr::LOCALHOST.into(), limits).await
    }

    pub(crate) async fn start_at(address: IpAddr, limits: Limits) -> Self {
        let authority = TestAuthority::new();
        let listener = TcpListener::bind((address, 0)).await.unwrap();
        let address = listener.local_addr().unwrap();
        let (tls, config) = watch::channel(authority.server_config());
        let (hub, shutdown) = (Arc::new(Hub::default()), CancellationToken::new());
        let (rejected_from, logged_calls) = (Arc::default(), LoggedCalls::default());
        let admission = Arc::new(ByCertificate {
            rejected_from: Arc::clone(&rejected_from),
            logged_calls: Arc::clone(&logged_calls),
        });
        let serving =
            serve(listener, config, Arc::clone(&hub), admission, limits, shutdown.clone());
        let serving = tokio::spawn(serving);
        Self { authority, address, hub, tls, shutdown, logged_calls, rejected_from, serving }
    }

    /// Publishes a client's resource set once the client is known.
    pub(crate) async fn publish(&self, client: &Identity, set: ResourceSet) {
        self.status_where(client, "it is connected", |status| status.streams > 0).await;
        self.hub.publish(&client.name(), set);
    }

    /// Waits until a client's status satisfies a condition.
    pub(crate) async fn status_where(
        &self,
        client: &Identity,
        what: &str,
        condition: impl Fn(&ClientStatus) -> bool,
    ) -> ClientStatus {
        eventually(what, async || {
            let status = self.hub.status().into_iter().find(|(key, _)| **key == *client.name());
            match status {
                Some((_, status)) if condition(&status) => Ok(status),
                other => Err(format!("{other:?}")),
            }
        })
        .await
    }

    /// Waits until the server has ended.
    pub(crate) async fn ended(self) {
        timeout(patience(), self.serving).await.expect("the server ends").unwrap();
    }
}

/// Logged calls, each with the client that reported it.
pub(crate) type LoggedCalls = Arc<Mutex<Vec<(ClientKey, LoggedCall)>>>;

/// Admits every proxy of the mesh whose node id matches its certificate.
struct ByCertificate {
    logged_calls: LoggedCalls,
    rejected_from: Arc<Mutex<Vec<SocketAddr>>>,
}

impl Admission for ByCertificate {
    fn admit(&self, peer: &Peer, node: &Node) -> Result<ClientKey, StreamRejection> {
        let identity = ironmesh_cert::peer::proxy_identity(&peer.certificate)
            .map_err(|error| StreamRejection(error.to_string()))?;
        let proxy = identity.proxy.to_string();
        if node.id != proxy {
            self.rejected_from.lock().unwrap().push(peer.address);
            return Err(StreamRejection(format!("`{}` has the certificate of `{proxy}`", node.id)));
        }
        Ok(proxy.into())
    }

    fn owner(&self, certificate: &CertificateDer<'_>) -> Option<ClientKey> {
        let identity = ironmesh_cert::peer::proxy_identity(certificate).ok()?;
        Some(identity.proxy.to_string().into())
    }

    fn logged(&self, client: &ClientKey, calls: Vec<LoggedCall>) {
        let calls = calls.into_iter().map(|call| (Arc::clone(client), call));
        self.logged_calls.lock().unwrap().extend(calls);
    }
}

/// A resource set of one cluster, whose content distinguishes it from others of its name.
pub(crate) fn cluster(name: &str, content: &str) -> (Arc<Resource>, ResourceSet) {
    let cluster = Resource::new(&Cluster {
        name: name.to_owned(),
        alt_stat_name: content.to_owned(),
        ..Cluster::default()
    });
    let cluster = Arc::new(cluster);
    let mut set = ResourceSet::default();
    set.insert(Arc::clone(&cluster));
    (cluster, set)
}
