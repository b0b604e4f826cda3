//! The fields of a stored record that this version does not know.
//!
//! It keeps them, and never interprets one.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize, Serializer};
use serde_json::Value;

/// The fields of a stored record that only a newer version knows. They are stored again with the record, so that two
/// versions can write one record, one after the other.
#[derive(Debug, Clone, Default, PartialEq, Eq, Deserialize)]
#[serde(try_from = "BTreeMap<String, Value>")]
pub struct UnknownFields(BTreeMap<String, Value>);

impl UnknownFields {
    /// The most bytes of these fields as JSON. A record with more is unreadable.
    pub const MAX_BYTES: usize = 16 * 1024;

    /// The field of this name.
    pub fn get(&self, name: &str) -> Option<&Value> {
        self.0.get(name)
    }

    /// Whether there is none.
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }
}

impl Serialize for UnknownFields {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        self.0.serialize(serializer)
    }
}

impl TryFrom<BTreeMap<String, Value>> for UnknownFields {
    type Error = UnknownFieldsTooLarge;

    fn try_from(fields: BTreeMap<String, Value>) -> Result<Self, UnknownFieldsTooLarge> {
        let has_few_bytes = |fields: &BTreeMap<String, Value>| {
            serde_json::to_vec(fields).is_ok_and(|json| json.len() <= Self::MAX_BYTES)
        };
        if fields.is_empty() || has_few_bytes(&fields) {
            return Ok(Self(fields));
        }
        Err(UnknownFieldsTooLarge)
    }
}

/// The unknown fields of a record have too many bytes.
#[derive(Debug, thiserror::Error)]
#[error(
    "record has more than {} bytes of fields that this version does not know",
    UnknownFields::MAX_BYTES
)]
pub struct UnknownFieldsTooLarge;
