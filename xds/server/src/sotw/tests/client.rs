//! The state-of-the-world dialect of the model client: it sends all names each time, and one
//! version.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{Cluster, Listener};
use ironmesh_xds_wire::{ErrorDetail, Resource, ResourceType, SotwRequest, SotwResponse, Version};

use crate::scenarios::client::{self, ResourceKey};
use crate::scenarios::dialect::{Dialect, Response};
use crate::sotw::SotwStream;

pub(super) type Client = client::Client<SotwStream>;

impl Dialect for SotwStream {
    fn either<T>(_: T, sotw: T) -> T {
        sotw
    }

    fn fresh() -> Self {
        Self::new(&BTreeMap::new(), BTreeMap::new())
    }

    fn again(client: &mut Client) -> Self {
        let kept = [Cluster, Listener].into_iter();
        let kept: BTreeMap<_, _> =
            kept.filter_map(|of| Some((of, client.stream.acked_state(of)?))).collect();
        for of in [Cluster, Listener] {
            // The server has not seen a late ACK. To a client that resumes with a version unknown
            // to it, the server sends everything, including NACKed versions.
            let version = client.versions.get(&of).map(Version::to_string).unwrap_or_default();
            let has_named =
                client.wanted.get(&of).is_some_and(|wanted| !wanted.requested_names().is_empty());
            if kept.get(&of).is_none_or(|kept| !kept.recognizes(&version, has_named)) {
                client.nacked.retain(|(nacked, _), _| *nacked != of);
                client.ever_nacked.retain(|(nacked, _), _| *nacked != of);
            }
        }
        Self::new(&client.nacked, kept)
    }

    fn read(response: SotwResponse) -> Response {
        let SotwResponse { resource_type, version, nonce, resources } = response;
        let is_whole = resource_type.allows_wildcard();
        Response { nonce, version: Some(version), resources, removed: Vec::new(), is_whole }
    }

    fn change(
        client: &mut Client,
        of: ResourceType,
        added: &[&str],
        dropped: &[&str],
    ) -> SotwRequest {
        let wanted = client.wanted.entry(of).or_default();
        wanted.unsubscribe(of, dropped);
        wanted.subscribe(of, added);
        // A client that has never named anything cannot express an empty subscription.
        let names = wanted.requested_names();
        wanted.replace(of, &names);
        client.current_request(of)
    }

    fn answering(request: SotwRequest, nonce: &str, error: Option<&str>) -> SotwRequest {
        let error = error.map(|why| ErrorDetail { code: 13, message: why.to_owned() });
        SotwRequest { nonce: nonce.to_owned(), error, ..request }
    }

    fn resume_request(client: &mut Client, of: ResourceType) -> SotwRequest {
        client.current_request(of)
    }

    /// A resource that it had already may replace the NACKed one.
    fn keeps_nack(had: Option<&Arc<Resource>>, resource: &Arc<Resource>) -> bool {
        had == Some(resource)
    }

    /// With an unknown base, the server attributes a NACK to all resources of the push.
    fn can_attribute_nacks(&self, of: ResourceType) -> bool {
        match of {
            Cluster => self.clusters.knows_base,
            Listener => self.listeners.knows_base,
            _ => true,
        }
    }

    fn is_blocked(&self, of: ResourceType) -> bool {
        match of {
            Cluster => self.clusters.is_blocked,
            Listener => self.listeners.is_blocked,
            _ => false,
        }
    }

    fn may_lack(client: &Client, key: &ResourceKey, version: Version) -> bool {
        client.ever_nacked.get(key) == Some(&version)
    }
}

impl Client {
    /// The request that it would send now.
    pub(super) fn current_request(&self, of: ResourceType) -> SotwRequest {
        SotwRequest {
            type_url: of.url().to_owned(),
            names: self.wanted[&of].requested_names(),
            version_info: self.versions.get(&of).map(Version::to_string).unwrap_or_default(),
            nonce: self.nonces_read.get(&of).map(u64::to_string).unwrap_or_default(),
            ..SotwRequest::default()
        }
    }

    /// Subscribes to exactly these names of a type.
    pub(super) fn request_names(&mut self, of: ResourceType, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        self.wanted.entry(of).or_default().replace(of, &names);
        self.forget_unwanted();
        let request = SotwRequest { names, ..self.current_request(of) };
        self.request(&request);
    }

    /// Sends the same request once more, as Envoy does when it warms a cluster again.
    pub(super) fn repeat_request(&mut self, of: ResourceType) {
        self.request(&self.current_request(of));
    }
}
