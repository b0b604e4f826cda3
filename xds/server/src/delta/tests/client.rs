//! The delta dialect of the model client: it sends changes of its subscriptions, and initial
//! versions when it resumes.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_xds_wire::{
    DeltaRequest, DeltaResponse, ErrorDetail, Resource, ResourceType, Version,
};

use crate::delta::DeltaStream;
use crate::scenarios::client::{self, ResourceKey};
use crate::scenarios::dialect::{Dialect, Response};

pub(super) type Client = client::Client<DeltaStream>;

impl Dialect for DeltaStream {
    fn either<T>(delta: T, _: T) -> T {
        delta
    }

    fn fresh() -> Self {
        Self::new(&BTreeMap::new())
    }

    fn again(client: &mut Client) -> Self {
        Self::new(&client.nacked)
    }

    fn read(response: DeltaResponse) -> Response {
        let DeltaResponse { nonce, resources, removed, .. } = response;
        Response { nonce, version: None, resources, removed, is_whole: false }
    }

    fn change(
        client: &mut Client,
        of: ResourceType,
        added: &[&str],
        dropped: &[&str],
    ) -> DeltaRequest {
        client.wanted.entry(of).or_default().unsubscribe(of, dropped);
        client.forget_unwanted();
        client.wanted.entry(of).or_default().subscribe(of, added);
        let unsubscribe = dropped.iter().collect();
        DeltaRequest { unsubscribe, ..subscribe(of, added) }
    }

    fn answering(request: DeltaRequest, nonce: &str, error: Option<&str>) -> DeltaRequest {
        let error = error.map(|why| ErrorDetail { code: 13, message: why.to_owned() });
        DeltaRequest { nonce: nonce.to_owned(), error, ..request }
    }

    fn resume_request(client: &mut Client, of: ResourceType) -> DeltaRequest {
        let has = client.has.iter().filter(|((has, _), _)| *has == of);
        DeltaRequest {
            initial_versions: Arc::new(
                has.map(|((_, n), r)| (n.to_string(), r.version().to_string())).collect(),
            ),
            subscribe: client.wanted[&of].requested_names().into_iter().collect(),
            ..subscribe(of, &[])
        }
    }

    fn keeps_nack(_: Option<&Arc<Resource>>, _: &Arc<Resource>) -> bool {
        false
    }

    fn can_attribute_nacks(&self, _: ResourceType) -> bool {
        true
    }

    fn is_blocked(&self, _: ResourceType) -> bool {
        false
    }

    fn may_lack(client: &Client, key: &ResourceKey, version: Version) -> bool {
        client.nacked.get(key) == Some(&version)
    }
}

impl Client {
    /// Resumes with subscriptions to other names than those that it has.
    pub(super) fn resume_for(&mut self, of: ResourceType, names: &[&str]) {
        let request = DeltaStream::resume_request(self, of);
        self.request(&DeltaRequest { subscribe: subscribe(of, names).subscribe, ..request });
    }
}

pub(super) fn subscribe(of: ResourceType, names: &[&str]) -> DeltaRequest {
    DeltaRequest {
        type_url: of.url().to_owned(),
        subscribe: names.iter().collect(),
        ..DeltaRequest::default()
    }
}

pub(super) fn answer(of: ResourceType, nonce: u64) -> DeltaRequest {
    DeltaRequest { nonce: nonce.to_string(), ..subscribe(of, &[]) }
}
