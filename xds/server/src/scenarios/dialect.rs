//! The differences between the variants, as far as the model client must know them.

use std::sync::Arc;

use ironmesh_xds_wire::{Resource, ResourceType, Version};

use super::client::{Client, ResourceKey};
use crate::variant::Variant;

/// How a client speaks one variant of the protocol.
pub(crate) trait Dialect: Variant + Sized {
    /// Selects the expectation for this variant.
    fn either<T>(delta: T, sotw: T) -> T;

    /// The first stream of a client, or one to a server that knows nothing of it.
    fn fresh() -> Self;
    /// The next stream of a client, to the same server.
    fn again(client: &mut Client<Self>) -> Self;

    fn read(response: Self::Response) -> Response;
    /// The request that changes subscriptions.
    fn change(
        client: &mut Client<Self>,
        of: ResourceType,
        added: &[&str],
        dropped: &[&str],
    ) -> Self::Request;
    /// The same request as an ACK or NACK of a response.
    fn answering(request: Self::Request, nonce: &str, error: Option<&str>) -> Self::Request;
    /// The first request of a type on a new stream, with the versions that the client has.
    fn resume_request(client: &mut Client<Self>, of: ResourceType) -> Self::Request;

    /// Whether an ACK of `resource` by a client that had `had` leaves the NACK in place.
    fn keeps_nack(had: Option<&Arc<Resource>>, resource: &Arc<Resource>) -> bool;
    /// Whether the server knows which resource caused a NACK of this type.
    fn can_attribute_nacks(&self, of: ResourceType) -> bool;
    /// Whether the server sends nothing of the type, because it does not know what the client has.
    fn is_blocked(&self, of: ResourceType) -> bool;
    /// Whether the client may lack this version, because it NACKed it.
    fn may_lack(client: &Client<Self>, key: &ResourceKey, version: Version) -> bool;
}

/// The content of a response, in either variant.
#[derive(Debug)]
pub(crate) struct Response {
    pub(crate) nonce: u64,
    /// In the state of the world: the version of all that the client has of the type.
    pub(crate) version: Option<Version>,
    pub(crate) resources: Vec<Arc<Resource>>,
    /// In delta only.
    pub(crate) removed: Vec<Arc<str>>,
    /// Whether resources that are not in it are removed (R41).
    pub(crate) is_whole: bool,
}

/// A response, with what is new in it to the client.
#[derive(Debug, Clone)]
pub(crate) struct Push {
    pub(crate) of: ResourceType,
    pub(crate) nonce: u64,
    pub(crate) version: Option<Version>,
    pub(crate) resources: Vec<Arc<Resource>>,
    /// The resources that the client neither has nor is being sent; all, in a response that is not
    /// whole.
    pub(crate) news: Vec<Arc<Resource>>,
    /// The names that the client no longer has after an ACK.
    pub(crate) removed: Vec<Arc<str>>,
    pub(crate) is_whole: bool,
}

impl Push {
    /// Whether an ACK of this push removes `name`.
    pub(crate) fn removes(&self, name: &Arc<str>) -> bool {
        let is_not_in = || self.resources.iter().all(|resource| resource.name() != name);
        self.removed.contains(name) || (self.is_whole && is_not_in())
    }
}
