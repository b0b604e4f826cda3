//! What a client must know of the variant that it speaks.

use std::sync::Arc;

use ironmesh_xds_wire::{Resource, ResourceType, Version};

use super::client::{Client, Key};
use crate::variant::Variant;

/// How a client speaks one variant of the protocol.
pub(crate) trait Dialect: Variant + Sized {
    /// What is expected of this variant.
    fn either<T>(delta: T, sotw: T) -> T;

    /// The first stream of a client, or one to a server that knows nothing of it.
    fn fresh() -> Self;
    /// The next stream of a client, to the same server.
    fn again(client: &mut Client<Self>) -> Self;

    fn read(response: Self::Response) -> Response;
    /// The request by which a client wants some names from now on, and others no more.
    fn change(
        client: &mut Client<Self>,
        of: ResourceType,
        added: &[&str],
        dropped: &[&str],
    ) -> Self::Request;
    /// The same request as an answer to a response.
    fn answering(request: Self::Request, nonce: &str, error: Option<&str>) -> Self::Request;
    /// The first request of a type on a new stream, of a client that says what it has.
    fn resume_request(client: &mut Client<Self>, of: ResourceType) -> Self::Request;

    /// Whether a client that has taken `resource`, and had `had`, has not taken back what it refused.
    fn keeps_nack(had: Option<&Arc<Resource>>, resource: &Arc<Resource>) -> bool;
    /// Whether the server knows whose fault a refusal of this type is.
    fn can_attribute_nacks(&self, of: ResourceType) -> bool;
    /// Whether nothing of the type is sent, because it is not known what the client has.
    fn is_blocked(&self, of: ResourceType) -> bool;
    /// Whether the client need not have this, because it has refused it.
    fn may_lack(client: &Client<Self>, key: &Key, version: Version) -> bool;
}

/// What a response says, in either variant.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) nonce: u64,
    /// In the state of the world: of all that the client has of the type.
    pub(crate) version: Option<Version>,
    pub(crate) resources: Vec<Arc<Resource>>,
    /// In delta.
    pub(crate) removed: Vec<Arc<str>>,
    /// Whether what is not in it is gone (R41).
    pub(crate) is_whole: bool,
}

/// A response, and what is new in it to the client.
#[derive(Debug, Clone)]
pub(crate) struct Push {
    pub(crate) of: ResourceType,
    pub(crate) nonce: u64,
    pub(crate) version: Option<Version>,
    pub(crate) resources: Vec<Arc<Resource>>,
    /// Those that the client has not, and is not being sent; in a response that is not whole, all.
    pub(crate) news: Vec<Arc<Resource>>,
    /// What the client has no more when it has taken this.
    pub(crate) removed: Vec<Arc<str>>,
    pub(crate) is_whole: bool,
}

impl Push {
    /// Whether the client has `name` no more when it has taken this.
    pub(crate) fn removes(&self, name: &Arc<str>) -> bool {
        let is_not_in = || self.resources.iter().all(|resource| resource.name() != name);
        self.removed.contains(name) || (self.is_whole && is_not_in())
    }
}
