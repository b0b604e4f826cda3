//! The frames of the floor: the resources of a recording, encoded once.

use std::collections::BTreeMap;

use anyhow::Context;
use bytes::Bytes;
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3 as discovery;
use ironmesh_xds_wire::pb::google::protobuf::Any;
use prost::Message;

use crate::messages::prefix;
use crate::recording::{Recorded, Recording};

/// Pre-encoded frames.
#[derive(Debug)]
pub(crate) struct Frames {
    /// All resources of a type, as one frame.
    pub(crate) by_type: BTreeMap<ResourceType, Bytes>,
    /// The type of the changing resource.
    pub(crate) changing_type: ResourceType,
    /// The changing resource, in two alternating contents.
    pub(crate) changing: [Bytes; 2],
}

impl Frames {
    /// Encodes a recording.
    pub(crate) fn new(recording: Recording) -> anyhow::Result<Self> {
        let first = recording.resources.iter().find(|one| recording.is_changing(one)).cloned();
        let first = first.context("the recording has no changing resource")?;
        let changing_type = resource_type(&first)?;
        let contents = [first, recording.changed];
        let changing = contents.map(|one| frame(changing_type, vec![resource(one)]));
        let mut by_type: BTreeMap<_, Vec<discovery::Resource>> = BTreeMap::new();
        for one in recording.resources {
            by_type.entry(resource_type(&one)?).or_default().push(resource(one));
        }
        let by_type = by_type.into_iter().map(|(t, resources)| (t, frame(t, resources))).collect();
        Ok(Self { by_type, changing_type, changing })
    }
}

fn resource_type(one: &Recorded) -> anyhow::Result<ResourceType> {
    ResourceType::from_url(&one.type_url).context("a recording of an unknown type")
}

fn resource(one: Recorded) -> discovery::Resource {
    discovery::Resource {
        name: one.name,
        version: one.version,
        resource: Some(Any { type_url: one.type_url, value: one.body }),
        ..discovery::Resource::default()
    }
}

/// A frame with these resources. All frames have the same nonce, since no client compares nonces.
fn frame(resource_type: ResourceType, resources: Vec<discovery::Resource>) -> Bytes {
    let message = discovery::DeltaDiscoveryResponse {
        type_url: resource_type.url().to_owned(),
        nonce: "1".to_owned(),
        resources,
        ..discovery::DeltaDiscoveryResponse::default()
    }
    .encode_to_vec();
    [&prefix(message.len())[..], &message].concat().into()
}
