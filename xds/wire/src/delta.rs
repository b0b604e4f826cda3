//! Delta requests and responses (`envoy.service.discovery.v3`), as far as a server needs them.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use envoy_types::pb::envoy::service::discovery::v3 as discovery;
use prost::Message;

use crate::node::Node;
use crate::resource::{Resource, ResourceType};

/// A request of a delta stream.
#[derive(Debug, Clone, Default)]
pub struct DeltaRequest {
    /// The client; only the first request of a stream must have it.
    pub node: Option<Node>,
    /// Which type it is about.
    pub type_url: String,
    /// Names that the client wants from now on.
    pub subscribe: Vec<String>,
    /// Names that it wants no more.
    pub unsubscribe: Vec<String>,
    /// What the client has from an earlier stream: name and version. In the first request only.
    pub initial_versions: BTreeMap<String, String>,
    /// The nonce of the response that this answers; empty where it answers none.
    pub nonce: String,
    /// Why the client refuses that response; `None` where it takes it.
    pub error: Option<ErrorDetail>,
}

/// Why a client refuses a response, in its own words.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ErrorDetail {
    /// A gRPC status code.
    pub code: i32,
    /// The words, at most [`ErrorDetail::MAX_LENGTH`] bytes of them, in one line.
    pub message: String,
}

impl ErrorDetail {
    /// How much of a refusal is kept: what a client says must not fill our memory or logs.
    pub const MAX_LENGTH: usize = 4096;

    fn new(code: i32, mut message: String) -> Self {
        let mut end = Self::MAX_LENGTH.min(message.len());
        while !message.is_char_boundary(end) {
            end -= 1;
        }
        message.truncate(end);
        // They reach logs and terminals: no line breaks and no escape sequences.
        let message = message.replace(char::is_control, " ");
        Self { code, message }
    }
}

impl From<discovery::DeltaDiscoveryRequest> for DeltaRequest {
    fn from(request: discovery::DeltaDiscoveryRequest) -> Self {
        Self {
            node: request.node.map(Node::from),
            type_url: request.type_url,
            subscribe: request.resource_names_subscribe,
            unsubscribe: request.resource_names_unsubscribe,
            initial_versions: request.initial_resource_versions.into_iter().collect(),
            nonce: request.response_nonce,
            error: request.error_detail.map(|status| ErrorDetail::new(status.code, status.message)),
        }
    }
}

/// A response of a delta stream, before it is a frame.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeltaResponse {
    /// Which type it is about.
    pub type_url: Arc<str>,
    /// Unique in its stream, and not 0.
    pub nonce: u64,
    /// What is new or changed.
    pub resources: Vec<Arc<Resource>>,
    /// What is gone, or was asked for and is not there.
    pub removed: Vec<Arc<str>>,
}

impl DeltaResponse {
    /// A response about one of the types that we serve.
    pub fn new(resource_type: ResourceType, nonce: u64) -> Self {
        Self {
            type_url: resource_type.url().into(),
            nonce,
            resources: Vec::new(),
            removed: Vec::new(),
        }
    }

    /// The gRPC frame: a head of this stream's own, then the shared bytes of each resource. No
    /// resource is copied.
    pub fn frame(&self) -> Vec<Bytes> {
        let head = discovery::DeltaDiscoveryResponse {
            type_url: (*self.type_url).to_owned(),
            nonce: self.nonce.to_string(),
            removed_resources: self.removed.iter().map(|name| (**name).to_owned()).collect(),
            ..discovery::DeltaDiscoveryResponse::default()
        };
        let entries = self.resources.iter().map(|resource| resource.delta_entry());
        let length = head.encoded_len() + entries.clone().map(Bytes::len).sum::<usize>();
        // gRPC over HTTP/2, "Length-Prefixed-Message": not compressed, then four bytes of length.
        let mut first = BytesMut::with_capacity(5 + head.encoded_len());
        first.put_u8(0);
        first.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
        first.put_slice(&head.encode_to_vec());
        std::iter::once(first.freeze()).chain(entries.cloned()).collect()
    }
}

#[cfg(test)]
mod tests {
    use envoy_types::pb::envoy::config::cluster::v3::Cluster;

    use super::*;

    #[test]
    fn a_frame_is_what_a_client_decodes() {
        let resource = |name: &str| {
            Arc::new(Resource::new(&Cluster { name: name.to_owned(), ..Cluster::default() }))
        };
        let response = DeltaResponse {
            resources: vec![resource("a"), resource("b")],
            removed: vec!["c".into()],
            ..DeltaResponse::new(ResourceType::Cluster, 7)
        };
        let frame = response.frame().concat();
        let (prefix, message) = frame.split_at(5);
        assert_eq!(prefix[0], 0);
        assert_eq!(u32::from_be_bytes(prefix[1..].try_into().unwrap()) as usize, message.len());
        let decoded = discovery::DeltaDiscoveryResponse::decode(message).unwrap();
        assert_eq!(decoded.type_url, ResourceType::Cluster.url());
        assert_eq!(decoded.nonce, "7");
        assert_eq!(decoded.removed_resources, ["c"]);
        assert_eq!(decoded.resources.len(), 2);
        assert_eq!(decoded.resources[1].name, "b");
        assert_eq!(decoded.resources[1].version, resource("b").version().to_string());
        let inside = decoded.resources[1].resource.as_ref().unwrap();
        assert_eq!(Cluster::decode(&*inside.value).unwrap().name, "b");
    }

    #[test]
    fn a_refusal_cannot_write_on_a_terminal() {
        let error = ErrorDetail::new(3, "no\n2026 INFO all is well\u{1b}[2J".to_owned());
        assert_eq!(error.message, "no 2026 INFO all is well [2J");
    }

    #[test]
    fn a_long_refusal_is_cut_between_characters() {
        let error = ErrorDetail::new(3, "ä".repeat(5000));
        assert_eq!(error.message.len(), ErrorDetail::MAX_LENGTH);
    }
}
