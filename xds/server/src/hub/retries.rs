//! Retries of NACKed resources: the deliberate exception by which the same version is sent to a
//! client again (docs/decisions/0052). The publisher decides when, and of what.

use std::sync::Arc;

use ironmesh_xds_wire::ResourceType;

use super::Hub;

/// The NACKed resources that a client's streams send again.
pub(crate) type Retries = Arc<[(ResourceType, Arc<str>)]>;

impl Hub {
    /// The error with which a connected client NACKed a resource of which it has no earlier version
    /// on any of its streams. `None` if it has one, or if that is unknown.
    pub fn lacks(&self, client: &str, resource_type: ResourceType, name: &str) -> Option<String> {
        let clients = self.clients.lock();
        let status = &clients.by_key.get(client).filter(|one| one.status.streams > 0)?.status;
        let nack = status.nacks.get(&(resource_type, Arc::from(name)))?;
        let lacks_all_versions =
            !nack.keeps_earlier && status.acked_version(resource_type, name).is_none();
        lacks_all_versions.then(|| nack.message.clone())
    }

    /// Sends a client these resources again although it NACKed their current versions, because the
    /// reasons were local to its machine and may be gone. A stream that has not read an earlier
    /// call follows the newest one.
    pub fn retry(
        &self,
        client: &str,
        resources: impl IntoIterator<Item = (ResourceType, Arc<str>)>,
    ) {
        let clients = self.clients.lock();
        if let Some(client) = clients.by_key.get(client) {
            client.retries.send_replace(resources.into_iter().collect());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ironmesh_xds_wire::Node;
    use ironmesh_xds_wire::ResourceType::Listener;

    use crate::hub::Hub;
    use crate::simulated::SimulatedClient;
    use crate::test_resources::{listener, set};

    #[test]
    fn client_lacks_nacked_resource_only_without_an_earlier_version() {
        let hub = Arc::<Hub>::default();
        let mut running = SimulatedClient::connect(&hub, "x", Node::default());
        hub.publish("x", set([listener("inbound", 1)]));
        running.ack_all();
        hub.publish("x", set([listener("inbound", 2)]));
        running.nack(Listener, "inbound", "cannot bind");
        assert_eq!(hub.lacks("x", Listener, "inbound"), None, "the first version is active");

        // A hot restart: the older process still has it.
        let started = SimulatedClient::connect(&hub, "x", Node::default());
        started.nack(Listener, "inbound", "cannot bind");
        assert_eq!(hub.lacks("x", Listener, "outbound"), None);
        assert_eq!(hub.lacks("x", Listener, "inbound"), None);
        drop(running);
        assert_eq!(hub.lacks("x", Listener, "inbound").as_deref(), Some("cannot bind"));
        drop(started);
        assert_eq!(hub.lacks("x", Listener, "inbound"), None, "it is not connected");
    }

    #[test]
    fn retry_reaches_every_stream_of_the_client() {
        let hub = Arc::<Hub>::default();
        let mut streams = [1, 2].map(|_| SimulatedClient::connect(&hub, "x", Node::default()));
        hub.retry("x", [(Listener, "inbound".into())]);
        for stream in &mut streams {
            assert_eq!(stream.take_retried(), [(Listener, Arc::from("inbound"))]);
            assert!(stream.take_retried().is_empty());
        }
    }
}
