//! Requests and responses as bytes. Responses are parsed in place: a generator that decoded and copied the responses of a
//! thousand clients would measure itself.

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::{BufMut, Bytes, BytesMut};
use ironmesh_xds_wire::ResourceType;
use ironmesh_xds_wire::pb::envoy::service::discovery::v3 as discovery;
use ironmesh_xds_wire::pb::google::rpc::Status;
use prost::Message;

/// The variant of the xDS protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Variant {
    /// Incremental xDS.
    Delta,
    /// State-of-the-world xDS.
    Sotw,
}

impl Variant {
    /// The path of the aggregated service's method.
    pub(crate) fn path(self) -> &'static str {
        match self {
            Self::Delta => DELTA_PATH,
            Self::Sotw => {
                "/envoy.service.discovery.v3.AggregatedDiscoveryService/StreamAggregatedResources"
            }
        }
    }
}

pub(crate) const DELTA_PATH: &str =
    "/envoy.service.discovery.v3.AggregatedDiscoveryService/DeltaAggregatedResources";

/// The bytes are not a valid message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Malformed;

/// The fields of a message, in place: field number and content. Only length-delimited fields have content.
pub(crate) struct Fields<'a>(pub(crate) &'a [u8]);

impl<'a> Fields<'a> {
    fn varint(&mut self) -> Result<u64, Malformed> {
        let mut value = 0_u64;
        for shift in (0..64).step_by(7) {
            let (&byte, rest) = self.0.split_first().ok_or(Malformed)?;
            self.0 = rest;
            value |= u64::from(byte & 0x7f) << shift;
            if byte & 0x80 == 0 {
                return Ok(value);
            }
        }
        Err(Malformed)
    }

    fn bytes(&mut self, length: u64) -> Result<&'a [u8], Malformed> {
        let length = usize::try_from(length).map_err(|_| Malformed)?;
        let (bytes, rest) = self.0.split_at_checked(length).ok_or(Malformed)?;
        self.0 = rest;
        Ok(bytes)
    }

    fn field(&mut self) -> Result<(u64, &'a [u8]), Malformed> {
        let key = self.varint()?;
        let content = match key & 7 {
            0 => {
                self.varint()?;
                &[]
            }
            1 => self.bytes(8)?,
            2 => {
                let length = self.varint()?;
                self.bytes(length)?
            }
            5 => self.bytes(4)?,
            _ => return Err(Malformed),
        };
        Ok((key >> 3, content))
    }
}

impl<'a> Iterator for Fields<'a> {
    type Item = Result<(u64, &'a [u8]), Malformed>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.0.is_empty() {
            return None;
        }
        let field = self.field();
        if field.is_err() {
            self.0 = &[];
        }
        Some(field)
    }
}

fn text(bytes: &[u8]) -> Result<&str, Malformed> {
    std::str::from_utf8(bytes).map_err(|_| Malformed)
}

/// The content of the field with this number; empty if there is none.
pub(crate) fn field(message: &[u8], number: u64) -> Result<&[u8], Malformed> {
    let mut found: &[u8] = &[];
    for field in Fields(message) {
        if let (of, content) = field?
            && of == number
        {
            found = content;
        }
    }
    Ok(found)
}

/// A response, in place.
#[derive(Debug, Default)]
pub(crate) struct Response<'a> {
    pub(crate) type_url: &'a str,
    pub(crate) nonce: &'a str,
    /// The version of the whole response. In SotW only.
    pub(crate) version_info: &'a str,
    pub(crate) entries: Vec<Entry<'a>>,
    pub(crate) removed: Vec<&'a str>,
}

/// One resource of a response.
#[derive(Debug)]
pub(crate) struct Entry<'a> {
    pub(crate) name: &'a str,
    /// In delta only.
    pub(crate) version: &'a str,
    pub(crate) body: &'a [u8],
}

impl<'a> Response<'a> {
    pub(crate) fn read(variant: Variant, message: &'a [u8]) -> Result<Self, Malformed> {
        let mut response = Self::default();
        for field in Fields(message) {
            // Both messages use the same number for the same field.
            match (field?, variant) {
                ((1, content), Variant::Sotw) => response.version_info = text(content)?,
                ((2, content), Variant::Sotw) => response.entries.push(Entry::of_any(content)?),
                ((2, content), Variant::Delta) => response.entries.push(Entry::of_delta(content)?),
                ((4, content), _) => response.type_url = text(content)?,
                ((5, content), _) => response.nonce = text(content)?,
                ((6, content), Variant::Delta) => response.removed.push(text(content)?),
                _ => {}
            }
        }
        Ok(response)
    }
}

impl<'a> Entry<'a> {
    fn of_delta(resource: &'a [u8]) -> Result<Self, Malformed> {
        let (version, any) = (text(field(resource, 1)?)?, field(resource, 2)?);
        Ok(Self { name: text(field(resource, 3)?)?, version, body: field(any, 2)? })
    }

    /// Each type that Ironmesh uses has its name as the first field.
    fn of_any(any: &'a [u8]) -> Result<Self, Malformed> {
        let body = field(any, 2)?;
        let name = Fields(body).next().ok_or(Malformed)??;
        if name.0 != 1 {
            return Err(Malformed);
        }
        Ok(Self { name: text(name.1)?, version: "", body })
    }
}

/// A request before encoding.
#[derive(Debug, Default)]
pub(crate) struct Request {
    pub(crate) type_url: &'static str,
    /// The new names in delta, all names in SotW.
    pub(crate) names: Vec<String>,
    /// In delta only.
    pub(crate) unsubscribe: Vec<String>,
    /// The versions from an earlier stream. In delta only.
    pub(crate) initial_versions: BTreeMap<Arc<str>, Arc<str>>,
    /// In SotW only.
    pub(crate) version_info: String,
    pub(crate) nonce: String,
    pub(crate) nack_message: Option<String>,
}

impl Request {
    pub(crate) fn new(resource_type: ResourceType) -> Self {
        Self { type_url: resource_type.url(), ..Self::default() }
    }

    /// The gRPC frame in pieces. `node` is the encoded node field, also in pieces.
    pub(crate) fn frame(self, variant: Variant, node: &[Bytes]) -> Vec<Bytes> {
        let error_detail =
            self.nack_message.map(|message| Status { code: 13, message, ..Status::default() });
        let rest = match variant {
            Variant::Delta => discovery::DeltaDiscoveryRequest {
                type_url: self.type_url.to_owned(),
                resource_names_subscribe: self.names,
                resource_names_unsubscribe: self.unsubscribe,
                initial_resource_versions: self
                    .initial_versions
                    .iter()
                    .map(|(name, version)| ((**name).to_owned(), (**version).to_owned()))
                    .collect(),
                response_nonce: self.nonce,
                error_detail,
                ..discovery::DeltaDiscoveryRequest::default()
            }
            .encode_to_vec(),
            Variant::Sotw => discovery::DiscoveryRequest {
                type_url: self.type_url.to_owned(),
                resource_names: self.names,
                version_info: self.version_info,
                response_nonce: self.nonce,
                error_detail,
                ..discovery::DiscoveryRequest::default()
            }
            .encode_to_vec(),
        };
        let length = rest.len() + node.iter().map(Bytes::len).sum::<usize>();
        let mut frame = vec![prefix(length)];
        frame.extend(node.iter().cloned());
        frame.push(rest.into());
        frame
    }
}

/// The prefix of a gRPC frame: the compression flag (off), then four bytes of length.
pub(crate) fn prefix(length: usize) -> Bytes {
    let mut prefix = BytesMut::with_capacity(5);
    prefix.put_u8(0);
    prefix.put_u32(u32::try_from(length).unwrap_or(u32::MAX));
    prefix.freeze()
}

/// Reassembles gRPC frames. It keeps no buffer between messages: 61 KB for each of ten thousand streams would be most of
/// their memory.
#[derive(Debug, Default)]
pub(crate) struct Deframer {
    waiting: BytesMut,
}

impl Deframer {
    /// Adds received bytes, and passes each complete message to `each`.
    pub(crate) fn push(&mut self, data: Bytes, mut each: impl FnMut(Bytes)) {
        let mut data = data;
        if !self.waiting.is_empty() {
            self.waiting.extend_from_slice(&data);
            match length(&self.waiting) {
                Some(length) if self.waiting.len() >= length => {
                    data = std::mem::take(&mut self.waiting).freeze();
                }
                _ => return,
            }
        }
        while let Some(length) = length(&data).filter(|length| data.len() >= *length) {
            let frame = data.split_to(length);
            each(frame.slice(PREFIX..));
        }
        if !data.is_empty() {
            self.waiting.extend_from_slice(&data);
        }
    }
}

/// The length of the frame with this beginning, including its prefix.
fn length(frame: &[u8]) -> Option<usize> {
    let prefix: [u8; PREFIX] = frame.get(..PREFIX)?.try_into().ok()?;
    let [_, a, b, c, d] = prefix;
    usize::try_from(u32::from_be_bytes([a, b, c, d])).ok().map(|length| length + PREFIX)
}

const PREFIX: usize = 5;

#[cfg(test)]
mod tests {
    use ironmesh_xds_wire::pb::envoy::config::cluster::v3::Cluster;
    use ironmesh_xds_wire::{DeltaResponse, Resource, SotwResponse, Version};

    use super::*;

    fn resources() -> Vec<Arc<Resource>> {
        ["a", "b"]
            .map(|name| Cluster { name: name.to_owned(), ..Cluster::default() })
            .map(|cluster| Arc::new(Resource::new(&cluster)))
            .to_vec()
    }

    #[test]
    fn responses_of_both_variants_decode_in_place() {
        let resources = resources();
        let delta = DeltaResponse {
            resources: resources.clone(),
            removed: vec!["c".into()],
            ..DeltaResponse::new(ResourceType::Cluster, 7)
        };
        let sotw = SotwResponse {
            resource_type: ResourceType::Cluster,
            version: Version::of_all(&resources),
            nonce: 7,
            resources: resources.clone(),
        };
        let (delta, sotw) = (delta.frame().concat(), sotw.frame().concat());
        let delta = Response::read(Variant::Delta, &delta[5..]).unwrap();
        let sotw = Response::read(Variant::Sotw, &sotw[5..]).unwrap();
        assert_eq!(delta.removed, ["c"]);
        assert_eq!(sotw.version_info, Version::of_all(&resources).to_string());
        for response in [&delta, &sotw] {
            assert_eq!((response.type_url, response.nonce), (ResourceType::Cluster.url(), "7"));
            for (entry, resource) in response.entries.iter().zip(&resources) {
                assert_eq!(entry.name, &**resource.name());
                assert_eq!(Cluster::decode(entry.body).unwrap().name, entry.name);
            }
        }
        assert_eq!(delta.entries[1].version, resources[1].version().to_string());
        assert_eq!(Response::read(Variant::Delta, &[0x12, 9, 1]).err(), Some(Malformed));
    }

    #[test]
    fn deframer_reassembles_frames_cut_at_any_size() {
        let messages: [&[u8]; 3] = [b"one", b"", b"three"];
        let stream: Vec<u8> =
            messages.iter().flat_map(|m| [&prefix(m.len()), *m].concat()).collect();
        for size in 1..=stream.len() {
            let (mut deframer, mut whole) = (Deframer::default(), Vec::new());
            for piece in stream.chunks(size) {
                deframer.push(Bytes::copy_from_slice(piece), |message| whole.push(message));
            }
            assert_eq!(whole, messages, "in pieces of {size}");
        }
    }
}
