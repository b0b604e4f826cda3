//! The delta variant, as Envoy speaks it.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_xds_wire::ResourceType::{self, Cluster, Endpoint, Listener, Route, Secret};
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::aggregated_discovery_service_client::AggregatedDiscoveryServiceClient;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3::{
    DeltaDiscoveryRequest, DeltaDiscoveryResponse,
};
use ironmesh_xds_wire::pb::google::rpc;
use tokio::sync::mpsc;
use tokio_stream::wrappers::ReceiverStream;
use tonic::Status;
use tonic::transport::Channel;

use super::Proxy;
use super::state::Removed;
use crate::contents::received;

type Requests = mpsc::Sender<DeltaDiscoveryRequest>;

/// The subscriptions of a stream.
type Subscribed = BTreeMap<ResourceType, Names>;

#[derive(Default)]
struct Names {
    now: BTreeSet<String>,
    /// All names ever requested: a dropped one may still be in flight.
    ever: BTreeSet<String>,
}

impl Proxy {
    pub(super) async fn run_delta(
        &self,
        channel: Channel,
        server: &'static str,
    ) -> Result<(), Status> {
        let (requests, outgoing) = mpsc::channel(32);
        let mut subscribed = Subscribed::new();
        self.begin_delta(&requests, &mut subscribed).await;
        let mut client = AggregatedDiscoveryServiceClient::new(channel);
        let responses = client.delta_aggregated_resources(ReceiverStream::new(outgoing));
        let mut responses = responses.await?.into_inner();
        self.state.borrow_mut().connected(server);
        loop {
            self.wait_before_reading().await;
            let Some(response) = responses.message().await? else { return Ok(()) };
            for request in self.answer_delta(response, &mut subscribed) {
                // Fails after the stream has ended: the next read returns the reason.
                drop(requests.send(request).await);
            }
        }
    }

    /// The first requests of a stream: the versions it has and its subscriptions. The first one has
    /// the node.
    async fn begin_delta(&self, requests: &Requests, subscribed: &mut Subscribed) {
        let mut node = Some(self.node());
        for of in [Cluster, Endpoint, Secret, Listener, Route] {
            let (names, has) = {
                let state = self.state.borrow();
                let has = state.has.iter().filter(|((one, _), _)| *one == of);
                let has = has.map(|((_, name), r)| (name.clone(), r.version().to_string()));
                (state.wants(of), has.collect())
            };
            if names.is_empty() && !of.allows_wildcard() {
                continue;
            }
            let request = DeltaDiscoveryRequest {
                node: node.take(),
                initial_resource_versions: has,
                ..changes(of, &names, &BTreeSet::new())
            };
            subscribed.insert(of, Names { now: names.clone(), ever: names });
            requests.send(request).await.unwrap();
        }
    }

    /// The answer to a response, and the subscription changes that follow.
    fn answer_delta(
        &self,
        response: DeltaDiscoveryResponse,
        subscribed: &mut Subscribed,
    ) -> Vec<DeltaDiscoveryRequest> {
        let of = ResourceType::from_url(&response.type_url).unwrap();
        let resources = response.resources.iter().map(|one| {
            let resource = received(of, one.resource.as_ref().unwrap());
            assert_eq!(
                (&*one.name, &one.version),
                (&**resource.name(), &resource.version().to_string())
            );
            // R38.
            let is_wanted = of.allows_wildcard() || subscribed[&of].ever.contains(&one.name);
            assert!(is_wanted, "not subscribed: {resource:?}");
            resource
        });
        let resources = resources.collect();
        let gone = Removed::Names(response.removed_resources);
        let mut state = self.state.borrow_mut();
        let error = state.receive(of, resources, gone).err();
        let mut requests = vec![DeltaDiscoveryRequest {
            response_nonce: response.nonce,
            error_detail: error.map(|message| rpc::Status { code: 13, message, details: vec![] }),
            ..changes(of, &BTreeSet::new(), &BTreeSet::new())
        }];
        for of in [Endpoint, Secret, Route] {
            let wanted = state.wants(of);
            let names = subscribed.entry(of).or_default();
            names.ever.extend(wanted.iter().cloned());
            let before = std::mem::replace(&mut names.now, wanted.clone());
            if before != wanted {
                requests.push(changes(of, &(&wanted - &before), &(&before - &wanted)));
            }
        }
        requests
    }
}

fn changes(
    of: ResourceType,
    wants: &BTreeSet<String>,
    drops: &BTreeSet<String>,
) -> DeltaDiscoveryRequest {
    DeltaDiscoveryRequest {
        type_url: of.url().to_owned(),
        resource_names_subscribe: wants.iter().cloned().collect(),
        resource_names_unsubscribe: drops.iter().cloned().collect(),
        ..DeltaDiscoveryRequest::default()
    }
}
