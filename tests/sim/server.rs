//! A simulated control plane: the xDS server, and a reconciler that publishes each client's set.

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::rc::Rc;
use std::sync::Arc;

use ironmesh_xds_server::{
    Admission, ClientKey, Hub, Limits, Peer, StreamRejection, serve_incoming,
};
use ironmesh_xds_wire::{Node, ResourceSet};
use rustls::ServerConfig;
use tokio::sync::{mpsc, watch};
use tokio_stream::wrappers::ReceiverStream;
use tokio_util::sync::CancellationToken;
use turmoil::net::TcpListener;

pub(crate) const PORT: u16 = 15128;

/// The resource sets by proxy id. All servers compile the same.
pub(crate) type Sets = BTreeMap<String, ResourceSet>;

/// One control plane. A restart loses its state.
#[derive(Clone)]
pub(crate) struct Server {
    pub(crate) tls: Arc<ServerConfig>,
    pub(crate) sets: Rc<watch::Sender<Sets>>,
    /// The hub of the current or the last process.
    pub(crate) hub: Rc<RefCell<Arc<Hub>>>,
}

impl Server {
    /// Runs from a start to a crash.
    pub(crate) async fn run(self) -> turmoil::Result {
        let hub = Arc::new(Hub::default());
        self.hub.replace(Arc::clone(&hub));
        let listener = TcpListener::bind(("0.0.0.0", PORT)).await?;
        let (incoming, accepted) = mpsc::channel(1);
        tokio::spawn(async move { while incoming.send(listener.accept().await).await.is_ok() {} });
        let (tls, admission) = (watch::Sender::new(self.tls), Arc::new(ByCertificate));
        let serving = serve_incoming(
            ReceiverStream::new(accepted),
            tls.subscribe(),
            Arc::clone(&hub),
            admission,
            Limits::default(),
            CancellationToken::new(),
        );
        tokio::select! {
            () = Box::pin(serving) => Err("it ended by itself")?,
            () = reconcile(&hub, self.sets.subscribe()) => Ok(()),
        }
    }
}

/// Publishes each connected client's set whenever it differs from the last one.
async fn reconcile(hub: &Hub, mut sets: watch::Receiver<Sets>) {
    let mut changes = hub.changes();
    loop {
        changes.mark_unchanged();
        // The changed clients do not matter here, but unread changes are not reported again.
        drop(hub.take_changed());
        for (client, set) in &*sets.borrow_and_update() {
            if !hub.published(client).is_some_and(|published| published.is_same_as(set)) {
                hub.publish(client, set.clone());
            }
        }
        tokio::select! {
            changed = sets.changed() => if changed.is_err() { return },
            changed = changes.changed() => if changed.is_err() { return },
        }
    }
}

/// Admits every proxy whose node id matches its certificate.
struct ByCertificate;

impl Admission for ByCertificate {
    fn admit(&self, peer: &Peer, node: &Node) -> Result<ClientKey, StreamRejection> {
        let identity = ironmesh_cert::peer::proxy_identity(&peer.certificate)
            .map_err(|error| StreamRejection(error.to_string()))?;
        let proxy = identity.proxy.to_string();
        if node.id != proxy {
            return Err(StreamRejection(format!("`{}` has the certificate of `{proxy}`", node.id)));
        }
        Ok(proxy.into())
    }
}
