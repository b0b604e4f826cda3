//! The frames of the floor: the resources of one client of a control plane, encoded once.

use std::collections::BTreeMap;
use std::path::Path;

use anyhow::Context;
use bytes::Bytes;
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3 as discovery;
use ironmesh_xds_wire::pb::google::protobuf::Any;
use prost::Message;
use serde::{Deserialize, Serialize};

use crate::envoy::Holdings;
use crate::messages::prefix;
use crate::shape::CHANGING;

/// A recorded resource.
#[derive(Debug, Serialize, Deserialize)]
struct Recorded {
    type_url: String,
    name: String,
    version: String,
    body: Vec<u8>,
}

/// Writes the resources of a client to a file.
pub(crate) fn write_recording(path: &Path, holdings: &Holdings) -> anyhow::Result<()> {
    let all = holdings.iter().flat_map(|(resource_type, resources)| {
        resources.values().map(|known| Recorded {
            type_url: resource_type.url().to_owned(),
            name: (*known.name).to_owned(),
            version: (*known.version).to_owned(),
            body: known.body.as_deref().unwrap_or_default().to_vec(),
        })
    });
    Ok(fs_err::write(path, serde_json::to_vec(&all.collect::<Vec<_>>())?)?)
}

/// Pre-encoded frames.
#[derive(Debug)]
pub(crate) struct Frames {
    /// All resources of a type, as one frame.
    pub(crate) by_type: BTreeMap<ResourceType, Bytes>,
    /// The changing resource, in two alternating contents.
    pub(crate) changing: [Bytes; 2],
}

impl Frames {
    /// Reads a recording.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        let all: Vec<Recorded> = serde_json::from_slice(&fs_err::read(path)?)?;
        let mut by_type: BTreeMap<_, Vec<discovery::Resource>> = BTreeMap::new();
        let mut changing = None;
        for one in all {
            let resource_type = ResourceType::from_url(&one.type_url);
            let resource_type = resource_type.context("a recording of an unknown type")?;
            let resource = discovery::Resource {
                name: one.name,
                version: one.version,
                resource: Some(Any { type_url: one.type_url, value: one.body }),
                ..discovery::Resource::default()
            };
            if resource_type == ResourceType::Endpoint && resource.name == CHANGING {
                changing = Some(resource.clone());
            }
            by_type.entry(resource_type).or_default().push(resource);
        }
        let first = changing.with_context(|| format!("the recording has no `{CHANGING}`"))?;
        let mut second = first.clone();
        second.version = second.version.chars().rev().collect();
        // The name a second time: protobuf keeps the last value, so the meaning is the same in different bytes.
        if let Some(body) = &mut second.resource {
            prost::encoding::string::encode(1, &second.name, &mut body.value);
        }
        let changing = [first, second].map(|one| frame(ResourceType::Endpoint, vec![one]));
        let by_type = by_type.into_iter().map(|(t, resources)| (t, frame(t, resources))).collect();
        Ok(Self { by_type, changing })
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
