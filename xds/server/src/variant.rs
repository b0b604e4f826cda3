//! The common interface of the two variants, for the task of a stream.

use std::collections::BTreeSet;
use std::fmt::Debug;
use std::sync::Arc;

use bytes::Bytes;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3 as discovery;
use ironmesh_xds_wire::{
    DeltaMessage, DeltaRequest, DeltaResponse, Node, ResourceSet, ResourceType, SotwRequest,
    SotwResponse, Version,
};
use tokio::time::Instant;

use crate::delta::DeltaStream;
use crate::hub::{Connection, ObservedPush};
use crate::overlay::Overlay;
use crate::sotw::SotwStream;
use crate::stream::StreamOutput;

/// The state machine of a stream.
pub(crate) trait Variant: Send + Sync + 'static {
    /// The decoded protobuf of a request.
    type Message: prost::Message + Default + 'static;
    type Request: From<Self::Message> + Send + Sync;
    type Response: Debug + Send;

    /// Creates a stream of a client.
    fn open(connection: &mut Connection) -> Self;
    fn node(request: &mut Self::Request) -> &mut Option<Node>;
    fn type_url(request: &mut Self::Request) -> &mut String;
    /// Whether this first request of a stream comes from a client that has nothing yet.
    fn is_fresh(request: &Self::Request) -> bool;
    fn frame(response: &Self::Response) -> Vec<Bytes>;
    /// A response with a frame of this size, for observers; `None` for one of an unsupported type.
    fn pushed(response: &Self::Response, bytes: usize) -> Option<ObservedPush<'_>>;

    fn on_request(
        &mut self,
        request: &Self::Request,
        now: Instant,
    ) -> Vec<StreamOutput<Self::Response>>;
    fn on_set(&mut self, set: ResourceSet, now: Instant) -> Vec<StreamOutput<Self::Response>>;
    fn on_timeout(&mut self, now: Instant) -> Vec<StreamOutput<Self::Response>>;
    /// Sends a resource again although the client NACKed its version.
    fn on_retry(
        &mut self,
        resource_type: ResourceType,
        name: &Arc<str>,
        now: Instant,
    ) -> Vec<StreamOutput<Self::Response>>;
    fn deadline(&self) -> Option<Instant>;
    fn acked(&self, resource_type: ResourceType) -> Overlay<Version>;

    /// The approximate memory for names that the client makes the server store.
    fn size(&self) -> usize;

    /// Saves for the client's next stream what it must know of this one.
    fn save_for_next_stream(&self, resource_type: ResourceType, connection: &Connection);
    /// The unanswered clusters. A client that has lost its stream meanwhile may report on the next
    /// one that it has them and their endpoints, and still wait for the endpoints.
    fn unanswered_clusters(&self) -> BTreeSet<Arc<str>>;
    /// Marks the endpoints of these clusters to be sent again with the next set.
    fn resend_endpoints(&mut self, clusters: &BTreeSet<Arc<str>>);
    /// Holds back the removal of clusters until `until`.
    fn defer_removals(&mut self, until: Instant);
}

impl Variant for DeltaStream {
    type Message = DeltaMessage;
    type Request = DeltaRequest;
    type Response = DeltaResponse;

    fn open(connection: &mut Connection) -> Self {
        Self::new(&connection.nacked)
    }

    fn node(request: &mut DeltaRequest) -> &mut Option<Node> {
        &mut request.node
    }

    fn type_url(request: &mut DeltaRequest) -> &mut String {
        &mut request.type_url
    }

    fn is_fresh(request: &DeltaRequest) -> bool {
        request.initial_versions.is_empty()
    }

    fn frame(response: &DeltaResponse) -> Vec<Bytes> {
        response.frame()
    }

    fn pushed(response: &DeltaResponse, bytes: usize) -> Option<ObservedPush<'_>> {
        let resource_type = ResourceType::from_url(&response.type_url)?;
        let (resources, removed) = (&response.resources, response.removed.len());
        Some(ObservedPush { resource_type, version: None, resources, removed, bytes })
    }

    fn on_request(
        &mut self,
        request: &DeltaRequest,
        now: Instant,
    ) -> Vec<StreamOutput<DeltaResponse>> {
        self.on_request(request, now)
    }

    fn on_set(&mut self, set: ResourceSet, now: Instant) -> Vec<StreamOutput<DeltaResponse>> {
        self.on_set(set, now)
    }

    fn on_timeout(&mut self, now: Instant) -> Vec<StreamOutput<DeltaResponse>> {
        self.on_timeout(now)
    }

    fn on_retry(
        &mut self,
        resource_type: ResourceType,
        name: &Arc<str>,
        now: Instant,
    ) -> Vec<StreamOutput<DeltaResponse>> {
        self.on_retry(resource_type, name, now)
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }

    fn acked(&self, resource_type: ResourceType) -> Overlay<Version> {
        self.acked(resource_type)
    }

    fn size(&self) -> usize {
        self.size()
    }

    /// Does nothing: a delta client reports its versions itself.
    fn save_for_next_stream(&self, _: ResourceType, _: &Connection) {}

    fn unanswered_clusters(&self) -> BTreeSet<Arc<str>> {
        self.unanswered_clusters()
    }

    fn resend_endpoints(&mut self, clusters: &BTreeSet<Arc<str>>) {
        self.resend_endpoints(clusters);
    }

    fn defer_removals(&mut self, until: Instant) {
        self.defer_removals(until);
    }
}

impl Variant for SotwStream {
    type Message = discovery::DiscoveryRequest;
    type Request = SotwRequest;
    type Response = SotwResponse;

    fn open(connection: &mut Connection) -> Self {
        Self::new(&connection.nacked, std::mem::take(&mut connection.acked_states))
    }

    fn node(request: &mut SotwRequest) -> &mut Option<Node> {
        &mut request.node
    }

    fn type_url(request: &mut SotwRequest) -> &mut String {
        &mut request.type_url
    }

    fn is_fresh(request: &SotwRequest) -> bool {
        request.version_info.is_empty()
    }

    fn frame(response: &SotwResponse) -> Vec<Bytes> {
        response.frame()
    }

    fn pushed(response: &SotwResponse, bytes: usize) -> Option<ObservedPush<'_>> {
        let SotwResponse { resource_type, version, resources, .. } = response;
        let (resource_type, version) = (*resource_type, Some(*version));
        Some(ObservedPush { resource_type, version, resources, removed: 0, bytes })
    }

    fn on_request(
        &mut self,
        request: &SotwRequest,
        now: Instant,
    ) -> Vec<StreamOutput<SotwResponse>> {
        self.on_request(request, now)
    }

    fn on_set(&mut self, set: ResourceSet, now: Instant) -> Vec<StreamOutput<SotwResponse>> {
        self.on_set(set, now)
    }

    fn on_timeout(&mut self, now: Instant) -> Vec<StreamOutput<SotwResponse>> {
        self.on_timeout(now)
    }

    fn on_retry(
        &mut self,
        resource_type: ResourceType,
        name: &Arc<str>,
        now: Instant,
    ) -> Vec<StreamOutput<SotwResponse>> {
        self.on_retry(resource_type, name, now)
    }

    fn deadline(&self) -> Option<Instant> {
        self.deadline()
    }

    fn acked(&self, resource_type: ResourceType) -> Overlay<Version> {
        self.acked(resource_type)
    }

    fn size(&self) -> usize {
        self.size()
    }

    fn save_for_next_stream(&self, resource_type: ResourceType, connection: &Connection) {
        if let Some(acked_state) = self.acked_state(resource_type) {
            connection.keep_acked_state(resource_type, acked_state);
        }
    }

    /// None: a new stream sends all endpoints again.
    fn unanswered_clusters(&self) -> BTreeSet<Arc<str>> {
        BTreeSet::new()
    }

    fn resend_endpoints(&mut self, clusters: &BTreeSet<Arc<str>>) {
        self.resend_endpoints(clusters);
    }

    fn defer_removals(&mut self, until: Instant) {
        self.defer_removals(until);
    }
}
