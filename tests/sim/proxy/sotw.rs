//! The state-of-the-world variant, as Envoy speaks it.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{DiscoveryRequest, DiscoveryResponse};
use ironmesh_xds_wire::pb::google::rpc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::Proxy;
use super::state::{Removed, State};
use crate::contents::received;

/// The state of one type on a stream.
#[derive(Default)]
struct TypeState {
    names: BTreeSet<String>,
    /// All names ever requested: a dropped one may still be in flight.
    ever: BTreeSet<String>,
    nonce: String,
}

type Stream = BTreeMap<ResourceType, TypeState>;

impl Proxy {
    pub(super) async fn run_sotw(
        &self,
        channel: Channel,
        server: &'static str,
    ) -> Result<(), Status> {
        let (requests, outgoing) = mpsc::channel(32);
        let mut stream = Stream::new();
        for request in self.begin_sotw(&mut stream) {
            requests.send(request).await.unwrap();
        }
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let responses = client.stream_aggregated_resources(ReceiverStream::new(outgoing));
        let mut responses = responses.await?.into_inner();
        self.state.borrow_mut().connected(server);
        loop {
            self.wait_before_reading().await;
            let Some(response) = responses.message().await? else { return Ok(()) };
            for request in self.answer_sotw(&response, &mut stream) {
                // Fails after the stream has ended: the next read returns the reason.
                drop(requests.send(request).await);
            }
        }
    }

    /// The first requests of a stream. The first one has the node.
    fn begin_sotw(&self, stream: &mut Stream) -> Vec<DiscoveryRequest> {
        let state = self.state.borrow();
        let mut requests = Vec::new();
        for of in [Cluster, Endpoint, Secret, Listener, Route] {
            let names = state.wants(of);
            if names.is_empty() && !of.allows_wildcard() {
                continue;
            }
            let ever = names.clone();
            stream.insert(of, TypeState { names, ever, ..TypeState::default() });
            requests.push(request(of, &state, stream));
        }
        requests[0].node = Some(self.node());
        requests
    }

    /// The answer to a response, and the requests that follow.
    fn answer_sotw(
        &self,
        response: &DiscoveryResponse,
        stream: &mut Stream,
    ) -> Vec<DiscoveryRequest> {
        let of = ResourceType::from_url(&response.type_url).unwrap();
        let resources: Vec<_> = response.resources.iter().map(|any| received(of, any)).collect();
        // R38.
        let is_wanted = |name: &str| of.allows_wildcard() || stream[&of].ever.contains(name);
        let unwanted = resources.iter().find(|resource| !is_wanted(resource.name()));
        assert!(unwanted.is_none(), "not subscribed: {unwanted:?}");
        let gone = if of.allows_wildcard() { Removed::AllElse } else { Removed::Names(Vec::new()) };
        let mut state = self.state.borrow_mut();
        let warmed = state.warming.clone();
        let error = state.receive(of, resources, gone).err();
        if error.is_none() {
            state.versions.insert(of, response.version_info.clone());
        }
        stream.get_mut(&of).unwrap().nonce.clone_from(&response.nonce);
        let error = error.map(|message| rpc::Status { code: 13, message, details: vec![] });
        let mut requests =
            vec![DiscoveryRequest { error_detail: error, ..request(of, &state, stream) }];
        for of in [Endpoint, Secret, Route] {
            let wanted = state.wants(of);
            let entry = stream.entry(of).or_default();
            entry.ever.extend(wanted.iter().cloned());
            let before = std::mem::replace(&mut entry.names, wanted);
            // A cluster that begins to warm requests its endpoints, also repeatedly.
            let warms = of == Endpoint && !state.warming.is_subset(&warmed);
            if before != entry.names || warms {
                requests.push(request(of, &state, stream));
            }
        }
        requests
    }
}

/// The current request of a type.
fn request(of: ResourceType, state: &State, stream: &Stream) -> DiscoveryRequest {
    let stream = &stream[&of];
    DiscoveryRequest {
        version_info: state.versions.get(&of).cloned().unwrap_or_default(),
        resource_names: stream.names.iter().cloned().collect(),
        type_url: of.url().to_owned(),
        response_nonce: stream.nonce.clone(),
        ..DiscoveryRequest::default()
    }
}
