//! How far each proxy has come with its resource set: which service ports it ACKed, whether they accept callers, and
//! whether its local clusters lead to an application.

use std::sync::Arc;

use ironmesh_catalog::{CertificateSource, Participation, ProxyId, ServicePort, Snapshot};
use ironmesh_xds_compile::names::local_cluster;
use ironmesh_xds_server::{ClientKey, Hub};
use ironmesh_xds_wire::ResourceType;

use super::Reconciler;
use super::clients::ClientConfig;
use super::rollout_order::RolloutOrder;
use crate::register::{AckedPorts, Progress};
use crate::serving_table::ServingTable;
use ironmesh_catalog::text::chain;

/// The inputs by which a proxy's progress is determined.
#[derive(Clone, Copy)]
struct ProgressContext<'a> {
    snapshot: &'a Snapshot,
    hub: &'a Hub,
    rollout_order: &'a RolloutOrder,
    serving: &'a ServingTable,
}

impl Reconciler {
    /// Records the progress of all pending proxies in the register: a proxy that ACKed what it needs becomes a
    /// participant, over restarts too; a proxy stops being one for ports that it serves no longer.
    pub(super) fn record_participation(&mut self) {
        let Some(snapshot) = self.snapshot_builder.snapshot() else { return };
        let context = ProgressContext {
            snapshot,
            hub: &self.hub,
            rollout_order: &self.rollout_order,
            serving: &self.serving,
        };
        let clients = &self.clients;
        let (mut progress, mut decided) = (Vec::new(), Vec::new());
        let mut without_listener = Vec::new();
        self.pending_progress.retain(|client| {
            let Some(config) = clients.config(client) else { return false };
            let serves_nothing = config.compiled.participation_resources.is_empty();
            let is_acked = !serves_nothing && context.is_acked(client, config);
            let nacked = (!is_acked).then(|| context.nacked_listener(client, config)).flatten();
            let is_serving = is_acked && context.accepts_callers(client, config);
            let acked_ports = match &nacked {
                _ if is_serving => AckedPorts::Exactly(&config.compiled.serves),
                Some(_) => AckedPorts::None,
                None => AckedPorts::AtMost(&config.compiled.serves),
            };
            let envoy = clients.node(client).and_then(|node| node.envoy_version);
            let envoy = envoy.map(|version| version.to_string());
            let of_client = context.progress(client, config, acked_ports);
            progress.push((config.proxy.record.id, Progress { envoy, ..of_client }));
            without_listener.push((Arc::clone(client), nacked));
            // A proxy without service ports has nothing to wait for.
            if is_serving || serves_nothing {
                decided.push(Arc::clone(client));
            }
            true
        });
        match self.register.record_progress(progress) {
            Ok(()) => {
                for client in decided {
                    self.pending_progress.remove(&client);
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

impl<'a> ProgressContext<'a> {
    /// Whether a client has ACKed everything that makes it a participant.
    fn is_acked(self, client: &ClientKey, config: &ClientConfig) -> bool {
        let needed =
            config.compiled.participation_resources.iter().map(|(resource_type, name, version)| {
                let config =
                    self.rollout_order.published_version(client, *resource_type, name, *version);
                (*resource_type, &**name, config)
            });
        self.hub.has_all(client, needed)
    }

    /// Whether the ports of a client accept callers. The ACK states that for the certificates that came before it by ADS.
    /// A listener that waits for a certificate of the agent is ACKed as well: only the agent's report states it then.
    fn accepts_callers(self, client: &ClientKey, config: &ClientConfig) -> bool {
        let (proxy, serves) = (&config.proxy, &config.compiled.serves);
        let process_starts = self.hub.process_starts(client);
        let (serving, snapshot) = (self.serving, self.snapshot);
        proxy.metadata.certificates == CertificateSource::Ads
            || serving.accepts_callers(proxy.record.id, process_starts, serves, snapshot)
    }

    /// Why a client has no inbound listener, in its own words: it NACKed the only one that its present process was
    /// sent. A client that NACKs an update keeps its earlier listener.
    fn nacked_listener(self, client: &ClientKey, config: &ClientConfig) -> Option<String> {
        let mut needed = config.compiled.participation_resources.iter();
        let (of, name, _) = needed.find(|(of, ..)| *of == ResourceType::Listener)?;
        self.hub.lacks(client, *of, name)
    }

    fn progress(
        self,
        client: &ClientKey,
        config: &'a ClientConfig,
        acked_ports: AckedPorts<'a>,
    ) -> Progress<'a> {
        let serves = &config.compiled.serves;
        let is_acked = matches!(acked_ports, AckedPorts::Exactly(_));
        let record = self.snapshot.record(config.proxy.record.id);
        let (mut without_backend, mut without_local_cluster) =
            (Participation::default(), Participation::default());
        for served in &serves.0 {
            let service_port = ServicePort::new(served.0.clone(), served.1);
            // Only a port without a backend can newly get one; all others have led to one all the time.
            let had_no_backend =
                || record.is_some_and(|record| record.ports_without_backend.0.contains(served));
            let missing = if !self.has_backend(config.proxy.record.id, &service_port) {
                &mut without_backend
            } else if !is_acked
                && had_no_backend()
                && !self.has_acked_local_cluster(client, config, &service_port)
            {
                &mut without_local_cluster
            } else {
                continue;
            };
            missing.0.insert(served.clone());
        }
        let certificates = config.proxy.metadata.certificates;
        let envoy = None;
        Progress { acked_ports, without_backend, without_local_cluster, certificates, envoy }
    }

    /// Whether a provider reports an application behind a proxy's service port.
    fn has_backend(self, id: ProxyId, port: &ServicePort) -> bool {
        self.snapshot.local_endpoints.contains_key(&(id, port.clone()))
    }

    /// Whether a client has ACKed the local cluster of a port, whatever else it NACKs.
    fn has_acked_local_cluster(
        self,
        client: &ClientKey,
        config: &ClientConfig,
        port: &ServicePort,
    ) -> bool {
        let name = local_cluster(port);
        let clusters = config.compiled.resources.of(ResourceType::Cluster);
        clusters.get(&name).is_some_and(|cluster| {
            let version = cluster.version();
            let config =
                self.rollout_order.published_version(client, ResourceType::Cluster, &name, version);
            self.hub.has_all(client, [(ResourceType::Cluster, &*name, config)])
        })
    }
}
