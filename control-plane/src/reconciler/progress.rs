//! How far each proxy has come with its resource set: which service ports it ACKed, and whether its local clusters
//! lead to an application.

use std::sync::Arc;

use ironmesh_catalog::{Participation, ProxyId, ServicePort, Snapshot};
use ironmesh_xds_compile::handover::local_cluster_name;
use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::ResourceType;

use super::Reconciler;
use super::clients::Given;
use super::order::Order;
use crate::register::{InForce, Progress};
use ironmesh_catalog::text::chain;

/// The inputs by which a proxy's progress is determined.
#[derive(Clone, Copy)]
struct Known<'a> {
    snapshot: &'a Snapshot,
    hub: &'a Hub,
    order: &'a Order,
}

impl Reconciler {
    /// Records the progress of all undecided proxies in the register: a proxy that ACKed what it needs becomes a
    /// participant, over restarts too; a proxy stops being one for ports that it serves no longer.
    pub(super) fn record_participation(&mut self) {
        let Some(snapshot) = self.snapshot_builder.snapshot() else { return };
        let known = Known { snapshot, hub: &self.hub, order: &self.order };
        let clients = &self.clients;
        let (mut progress, mut decided) = (Vec::new(), Vec::new());
        let mut without_listener = Vec::new();
        self.undecided.retain(|client| {
            let Some(given) = clients.given(client) else { return false };
            let serves_nothing = given.compiled.takes_part_with.is_empty();
            let is_in_force = !serves_nothing && known.is_in_force(client, given);
            let nacked = (!is_in_force).then(|| known.nacked_listener(client, given)).flatten();
            let in_force = match &nacked {
                _ if is_in_force => InForce::These(&given.compiled.serves),
                Some(_) => InForce::Nothing,
                None => InForce::AtMost(&given.compiled.serves),
            };
            progress.push((given.proxy.record.id, known.progress(client, given, in_force)));
            without_listener.push((Arc::clone(client), nacked));
            // A proxy without service ports has nothing to wait for.
            if is_in_force || serves_nothing {
                decided.push(Arc::clone(client));
            }
            true
        });
        match self.register.participate(progress) {
            Ok(()) => {
                for client in decided {
                    self.undecided.remove(&client);
                }
            }
            // They stay pending, so each pass tries again.
            Err(error) => {
                tracing::error!(
                    error = chain(&error),
                    "cannot store which proxies are participants"
                );
            }
        }
        for (client, nacked) in without_listener {
            self.clients.set_without_listener(&client, nacked);
        }
    }
}

impl<'a> Known<'a> {
    /// Whether a client has ACKed everything that makes it a participant.
    fn is_in_force(self, client: &ClientKey, given: &Given) -> bool {
        let needed = given.compiled.takes_part_with.iter().map(|(resource_type, name, version)| {
            let given = self.order.given(client, *resource_type, name, *version);
            (*resource_type, &**name, given)
        });
        self.hub.has_all(client, needed)
    }

    /// Why a client has no inbound listener, in its own words: it NACKed the only one that its present process was
    /// sent. A client that NACKs an update keeps its earlier listener.
    fn nacked_listener(self, client: &ClientKey, given: &Given) -> Option<String> {
        let mut needed = given.compiled.takes_part_with.iter();
        let (of, name, _) = needed.find(|(of, ..)| *of == ResourceType::Listener)?;
        self.hub.lacks(client, *of, name)
    }

    fn progress(self, client: &ClientKey, given: &'a Given, in_force: InForce<'a>) -> Progress<'a> {
        let serves = &given.compiled.serves;
        let is_in_force = matches!(in_force, InForce::These(_));
        let record = self.snapshot.record(given.proxy.record.id);
        let (mut without_application, mut without_way) =
            (Participation::default(), Participation::default());
        for served in &serves.0 {
            let service_port = ServicePort::new(served.0.clone(), served.1);
            // Only a port without a backend can newly get one; all others have led to one all the time.
            let is_vacant = || record.is_some_and(|record| record.vacant.0.contains(served));
            let missing = if !self.has_application(given.proxy.record.id, &service_port) {
                &mut without_application
            } else if !is_in_force && is_vacant() && !self.leads(client, given, &service_port) {
                &mut without_way
            } else {
                continue;
            };
            missing.0.insert(served.clone());
        }
        Progress { in_force, without_application, without_way }
    }

    /// Whether a provider reports an application behind a proxy's service port.
    fn has_application(self, id: ProxyId, port: &ServicePort) -> bool {
        self.snapshot.local_endpoints.contains_key(&(id, port.clone()))
    }

    /// Whether a client has ACKed the local cluster of a port, whatever else it NACKs.
    fn leads(self, client: &ClientKey, given: &Given, port: &ServicePort) -> bool {
        let name = local_cluster_name(port);
        let clusters = given.compiled.resources.of(ResourceType::Cluster);
        clusters.get(&*name).is_some_and(|cluster| {
            let version = cluster.version();
            let given = self.order.given(client, ResourceType::Cluster, &name, version);
            self.hub.has_all(client, [(ResourceType::Cluster, &*name, given)])
        })
    }
}
