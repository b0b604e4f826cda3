//! How a client speaks the state of the world: it says all that it wants each time, and one version.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_xds_wire::ResourceType::{Cluster, Listener};
use ironmesh_xds_wire::{ErrorDetail, Resource, ResourceType, SotwRequest, SotwResponse, Version};

use crate::scenarios::client::{self, Key};
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
            kept.filter_map(|of| Some((of, client.stream.in_force(of)?))).collect();
        for of in [Cluster, Listener] {
            // An answer that came too late the server has not heard. To a client that comes with a
            // version that it does not know, it sends all, also what was refused.
            let version = client.versions.get(&of).map(Version::to_string).unwrap_or_default();
            let has_named =
                client.wanted.get(&of).is_some_and(|wanted| !wanted.requested_names().is_empty());
            if kept.get(&of).is_none_or(|kept| !kept.knows(&version, has_named)) {
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
        // Who has never named anything cannot say that it wants nothing.
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

    /// What it had already may stand in the place of what it refuses.
    fn keeps_nack(had: Option<&Arc<Resource>>, resource: &Arc<Resource>) -> bool {
        had == Some(resource)
    }

    /// Where it is not known what the client has, all are blamed for one.
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

    fn may_lack(client: &Client, key: &Key, version: Version) -> bool {
        client.ever_nacked.get(key) == Some(&version)
    }
}

impl Client {
    /// What it would say now.
    pub(super) fn current_request(&self, of: ResourceType) -> SotwRequest {
        SotwRequest {
            type_url: of.url().to_owned(),
            names: self.wanted[&of].requested_names(),
            version_info: self.versions.get(&of).map(Version::to_string).unwrap_or_default(),
            nonce: self.nonces_read.get(&of).map(u64::to_string).unwrap_or_default(),
            ..SotwRequest::default()
        }
    }

    /// Wants these names of a type, as they are here, and no others.
    pub(super) fn request_names(&mut self, of: ResourceType, names: &[&str]) {
        let names: Vec<_> = names.iter().map(|&name| name.to_owned()).collect();
        self.wanted.entry(of).or_default().replace(of, &names);
        self.forget_unwanted();
        let request = SotwRequest { names, ..self.current_request(of) };
        self.request(&request);
    }

    /// Says once more what it wants, as Envoy does when it warms a cluster anew.
    pub(super) fn repeat_request(&mut self, of: ResourceType) {
        self.request(&self.current_request(of));
    }
}
