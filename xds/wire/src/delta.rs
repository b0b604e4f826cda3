//! Delta requests and responses (`envoy.service.discovery.v3`), as far as a server needs them.

use std::borrow::Cow;
use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;

use crate::error_detail::ErrorDetail;
use crate::frame::frame;
use crate::names::{InitialVersions, NameList};
use crate::node::Node;
use crate::resource::{Resource, ResourceType};

mod message;

pub use message::DeltaMessage;

/// A request of a delta stream.
#[derive(Debug, Clone, Default)]
pub struct DeltaRequest {
    /// The client; only the first request of a stream must have it.
    pub node: Option<Node>,
    /// The type URL.
    pub type_url: String,
    /// The names to subscribe to.
    pub subscribe: NameList,
    /// The names to unsubscribe from.
    pub unsubscribe: NameList,
    /// The initial versions: resources from an earlier stream, by name. Only in the first request.
    pub initial_versions: Arc<InitialVersions>,
    /// The nonce of the response that this ACKs or NACKs; empty if neither.
    pub nonce: String,
    /// The error of a NACK; `None` in an ACK.
    pub error: Option<ErrorDetail>,
}

impl From<DeltaMessage> for DeltaRequest {
    fn from(mut message: DeltaMessage) -> Self {
        message.subscribe.shrink();
        message.unsubscribe.shrink();
        message.initial_versions.shrink();
        Self {
            node: message.others.node.map(Node::from),
            type_url: message.others.type_url,
            subscribe: message.subscribe,
            unsubscribe: message.unsubscribe,
            initial_versions: Arc::new(message.initial_versions),
            nonce: message.others.response_nonce,
            error: message.others.error_detail.map(ErrorDetail::from),
        }
    }
}

/// A response of a delta stream, before framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaResponse {
    /// The type URL.
    pub type_url: Cow<'static, str>,
    /// Unique in its stream, and not 0.
    pub nonce: u64,
    /// Added or changed resources.
    pub resources: Vec<Arc<Resource>>,
    /// Removed names, and requested names that do not exist.
    pub removed: Vec<Arc<str>>,
}

impl DeltaResponse {
    /// Creates an empty response of a supported type.
    pub fn new(resource_type: ResourceType, nonce: u64) -> Self {
        Self {
            type_url: resource_type.url().into(),
            nonce,
            resources: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// The gRPC frame: this stream's own head, then the shared bytes of each resource. No resource
    /// is copied.
    pub fn frame(&self) -> Vec<Bytes> {
        let head = discovery::DeltaDiscoveryResponse {
            type_url: (*self.type_url).to_owned(),
            nonce: self.nonce.to_string(),
            removed_resources: self.removed.iter().map(|name| (**name).to_owned()).collect(),
            ..discovery::DeltaDiscoveryResponse::default()
        };
        frame(&head, self.resources.iter().map(|resource| resource.delta_entry()))
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;
    use prost::Message;

    use super::*;
    use crate::frame::read;

    /// R48.
    #[test]
    fn frame_decodes_to_the_same_response() {
        let resource = |name: &str| {
            Arc::new(Resource::new(&Cluster { name: name.to_owned(), ..Cluster::default() }))
        };
        let response = DeltaResponse {
            resources: vec![resource("a"), resource("b")],
            removed: vec!["c".into()],
            ..DeltaResponse::new(ResourceType::Cluster, 7)
        };
        let decoded: discovery::DeltaDiscoveryResponse = read(&response.frame());
        assert_eq!(decoded.type_url, ResourceType::Cluster.url());
        assert_eq!(decoded.nonce, "7");
        assert_eq!(decoded.removed_resources, ["c"]);
        assert_eq!(decoded.resources.len(), 2);
        assert_eq!(decoded.resources[1].name, "b");
        assert_eq!(decoded.resources[1].version, resource("b").version().to_string());
        let inside = decoded.resources[1].resource.as_ref().unwrap();
        assert_eq!(Cluster::decode(&*inside.value).unwrap().name, "b");
    }

    /// R22, R39, R45, R49, R50.
    #[test]
    fn response_sets_only_fields_that_envoy_implements() {
        let cluster = Cluster { name: "a".to_owned(), ..Cluster::default() };
        let resource = Arc::new(Resource::new(&cluster));
        let response = DeltaResponse {
            resources: vec![Arc::clone(&resource)],
            ..DeltaResponse::new(ResourceType::Cluster, 7)
        };
        let body = discovery::Resource {
            name: cluster.name.clone(),
            version: resource.version().to_string(),
            resource: Some(crate::any(&cluster)),
            ..discovery::Resource::default()
        };
        let all = discovery::DeltaDiscoveryResponse {
            type_url: ResourceType::Cluster.url().to_owned(),
            nonce: "7".to_owned(),
            resources: vec![body],
            ..discovery::DeltaDiscoveryResponse::default()
        };
        assert_eq!(read::<discovery::DeltaDiscoveryResponse>(&response.frame()), all);
    }

    /// A request may wait for the first set, and its names are counted then, not their capacity.
    #[test]
    fn capacity_of_a_request_is_bounded_by_what_was_decoded() {
        let known = discovery::DeltaDiscoveryRequest {
            resource_names_subscribe: vec!["a".to_owned()],
            initial_resource_versions: [("a".to_owned(), "1".to_owned())].into(),
            ..discovery::DeltaDiscoveryRequest::default()
        };
        // Field 100, of one million bytes.
        let unknown = [[0xa2, 0x06].as_slice(), &[0xc0, 0x84, 0x3d], &vec![0; 1_000_000]].concat();
        let message = DeltaMessage::decode(&*[known.encode_to_vec(), unknown].concat()).unwrap();
        let request = DeltaRequest::from(message);
        assert_eq!((request.subscribe.len(), request.initial_versions.len()), (1, 1));
        assert!(request.subscribe.capacity() < 100 && request.initial_versions.capacity() < 100);
    }

    /// R49.
    #[test]
    fn unimplemented_resource_locators_are_ignored() {
        let locator = discovery::ResourceLocator { name: "a".to_owned(), ..Default::default() };
        let message = discovery::DeltaDiscoveryRequest {
            resource_locators_subscribe: vec![locator.clone()],
            resource_locators_unsubscribe: vec![locator],
            ..discovery::DeltaDiscoveryRequest::default()
        };
        let message = DeltaMessage::decode(&*message.encode_to_vec()).unwrap();
        let request = DeltaRequest::from(message);
        assert!(request.subscribe.is_empty() && request.unsubscribe.is_empty());
    }
}
