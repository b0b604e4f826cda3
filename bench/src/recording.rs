//! The recorded resources of one client, which the floor and other targets send to all clients.

use std::path::Path;

use anyhow::Context;
use ironmesh_xds_wire::ResourceType;
use serde::{Deserialize, Serialize, de};

use crate::envoy::Holdings;
use crate::shape::CHANGING;

/// A recording, as a JSON file.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recording {
    /// All resources.
    pub(crate) resources: Vec<Recorded>,
    /// The second content of one of them.
    pub(crate) changed: Recorded,
}

/// A recorded resource.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub(crate) struct Recorded {
    pub(crate) type_url: String,
    pub(crate) name: String,
    pub(crate) version: String,
    /// Its bytes.
    #[serde(serialize_with = "write_hexadecimal", deserialize_with = "read_hexadecimal")]
    pub(crate) body: Vec<u8>,
}

impl Recording {
    /// Reads a file.
    pub(crate) fn read(path: &Path) -> anyhow::Result<Self> {
        Ok(serde_json::from_slice(&fs_err::read(path)?)?)
    }

    /// Whether `changed` replaces this resource.
    pub(crate) fn is_changing(&self, resource: &Recorded) -> bool {
        (&resource.type_url, &resource.name) == (&self.changed.type_url, &self.changed.name)
    }
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
    let resources: Vec<_> = all.collect();
    let endpoints = ResourceType::Endpoint.url();
    let first = resources.iter().find(|one| one.name == CHANGING && one.type_url == endpoints);
    let mut changed = first.with_context(|| format!("no client has `{CHANGING}`"))?.clone();
    changed.version = changed.version.chars().rev().collect();
    // The name a second time: protobuf keeps the last value, so the meaning is the same in different bytes.
    prost::encoding::string::encode(1, &changed.name, &mut changed.body);
    Ok(fs_err::write(path, serde_json::to_vec(&Recording { resources, changed })?)?)
}

fn write_hexadecimal<S: serde::Serializer>(body: &[u8], to: S) -> Result<S::Ok, S::Error> {
    let digits = body.iter().flat_map(|byte| [byte >> 4, byte & 0xf]);
    let digits = digits.filter_map(|digit| char::from_digit(digit.into(), 16));
    to.serialize_str(&digits.collect::<String>())
}

fn read_hexadecimal<'de, D: serde::Deserializer<'de>>(from: D) -> Result<Vec<u8>, D::Error> {
    let text = String::deserialize(from)?;
    let pairs = text.as_bytes().chunks(2).map(std::str::from_utf8);
    let byte =
        |pair: Result<&str, _>| u8::from_str_radix(pair.ok().filter(|p| p.len() == 2)?, 16).ok();
    pairs.map(byte).collect::<Option<_>>().ok_or_else(|| de::Error::custom("no hexadecimal bytes"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn recording_survives_json_with_hexadecimal_bodies() {
        let of = |version: &str, body: &[u8]| Recorded {
            type_url: "type".to_owned(),
            name: "one".to_owned(),
            version: version.to_owned(),
            body: body.to_vec(),
        };
        let recording =
            Recording { resources: vec![of("1", &[0, 10, 255])], changed: of("2", &[]) };
        assert!(recording.is_changing(&recording.resources[0]));
        let json = serde_json::to_string(&recording).unwrap();
        assert!(json.contains("\"body\":\"000aff\""), "{json}");
        assert_eq!(serde_json::from_str::<Recording>(&json).unwrap(), recording);
        for bad in ["0", "0g", "äö"] {
            let json = json.replace("000aff", bad);
            assert!(serde_json::from_str::<Recording>(&json).is_err(), "{bad}");
        }
    }
}
