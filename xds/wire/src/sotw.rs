//! State-of-the-world requests and responses (`envoy.service.discovery.v3`), as far as a server
//! needs them.

use std::sync::Arc;

use bytes::Bytes;
use envoy_types::pb::envoy::service::discovery::v3 as discovery;

use crate::error_detail::ErrorDetail;
use crate::frame::frame;
use crate::node::Node;
use crate::resource::{Resource, ResourceType, Version};

/// A request of a state-of-the-world stream.
#[derive(Debug, Clone, Default)]
pub struct SotwRequest {
    /// The client; only the first request of a stream must have it.
    pub node: Option<Node>,
    /// The type URL.
    pub type_url: String,
    /// All names of the subscription, in each request.
    pub names: Vec<String>,
    /// The version that the client ACKed last, perhaps on an earlier stream; empty if none.
    pub version_info: String,
    /// The nonce of the last response that the client has read; empty if none.
    pub nonce: String,
    /// The error of a NACK; `None` in an ACK.
    pub error: Option<ErrorDetail>,
}

impl From<discovery::DiscoveryRequest> for SotwRequest {
    fn from(request: discovery::DiscoveryRequest) -> Self {
        Self {
            node: request.node.map(Node::from),
            type_url: request.type_url,
            names: request.resource_names,
            version_info: request.version_info,
            nonce: request.response_nonce,
            error: request.error_detail.map(ErrorDetail::from),
        }
    }
}

/// A response of a state-of-the-world stream, before framing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SotwResponse {
    /// Its type.
    pub resource_type: ResourceType,
    /// The version of all resources of the type that the client has after an ACK.
    pub version: Version,
    /// Unique in its stream, and not 0.
    pub nonce: u64,
    /// All clusters or listeners; some resources of other types.
    pub resources: Vec<Arc<Resource>>,
}

impl SotwResponse {
    /// The gRPC frame: this stream's own head, then the shared bytes of each resource. No resource
    /// is copied.
    pub fn frame(&self) -> Vec<Bytes> {
        let head = discovery::DiscoveryResponse {
            version_info: self.version.to_string(),
            type_url: self.resource_type.url().to_owned(),
            nonce: self.nonce.to_string(),
            ..discovery::DiscoveryResponse::default()
        };
        frame(&head, self.resources.iter().map(|resource| resource.sotw_entry()))
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
        let resources = vec![resource("a"), resource("b")];
        let response = SotwResponse {
            resource_type: ResourceType::Cluster,
            version: Version::of_all(&resources),
            nonce: 7,
            resources,
        };
        let decoded: discovery::DiscoveryResponse = read(&response.frame());
        assert_eq!(decoded.version_info, response.version.to_string());
        assert_eq!(decoded.type_url, ResourceType::Cluster.url());
        assert_eq!(decoded.nonce, "7");
        assert_eq!(decoded.resources.len(), 2);
        assert_eq!(decoded.resources[1].type_url, ResourceType::Cluster.url());
        assert_eq!(Cluster::decode(&*decoded.resources[1].value).unwrap().name, "b");
    }

    /// R39, R49, R50.
    #[test]
    fn response_sets_only_fields_that_envoy_implements() {
        let cluster = Cluster { name: "a".to_owned(), ..Cluster::default() };
        let resources = vec![Arc::new(Resource::new(&cluster))];
        let version = Version::of_all(&resources);
        let resource_type = ResourceType::Cluster;
        let response = SotwResponse { resource_type, version, nonce: 7, resources };
        let all = discovery::DiscoveryResponse {
            version_info: version.to_string(),
            type_url: resource_type.url().to_owned(),
            nonce: "7".to_owned(),
            resources: vec![crate::any(&cluster)],
            ..discovery::DiscoveryResponse::default()
        };
        assert_eq!(read::<discovery::DiscoveryResponse>(&response.frame()), all);
    }

    /// R49.
    #[test]
    fn unimplemented_resource_locators_are_ignored() {
        let locator = discovery::ResourceLocator { name: "a".to_owned(), ..Default::default() };
        let request = SotwRequest::from(discovery::DiscoveryRequest {
            resource_locators: vec![locator],
            ..discovery::DiscoveryRequest::default()
        });
        assert!(request.names.is_empty());
    }
}
