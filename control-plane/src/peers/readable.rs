//! Reads notes of control planes with other versions: what this version cannot read is left out, and the rest counts.

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

/// Reads a value; none if this version cannot read it.
pub(super) fn readable<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<T>, D::Error> {
    Ok(serde_json::from_value(Value::deserialize(deserializer)?).ok())
}

/// Reads the items of a list that this version can read.
pub(super) fn readable_items<'de, T: DeserializeOwned, D: Deserializer<'de>>(
    deserializer: D,
) -> Result<Vec<T>, D::Error> {
    let items = readable::<Vec<Value>, D>(deserializer)?.unwrap_or_default();
    Ok(items.into_iter().filter_map(|item| serde_json::from_value(item).ok()).collect())
}
