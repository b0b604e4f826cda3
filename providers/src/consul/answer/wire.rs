//! The fields of Consul's JSON that the provider reads. The health endpoints have them since
//! version 1.8; empty lists and maps may be `null`.

use std::collections::BTreeMap;

use serde::Deserialize;
use serde_json::Value;

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Entry {
    pub(super) node: Node,
    pub(super) service: Service,
    #[serde(default)]
    pub(super) checks: Option<Vec<Check>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Node {
    #[serde(rename = "Node")]
    pub(super) name: String,
    pub(super) address: String,
    #[serde(default)]
    pub(super) tagged_addresses: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) meta: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) locality: Option<Place>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Service {
    #[serde(rename = "ID")]
    pub(super) id: String,
    #[serde(default)]
    pub(super) tags: Option<Vec<String>>,
    #[serde(default)]
    pub(super) address: Option<String>,
    #[serde(default)]
    pub(super) tagged_addresses: Option<BTreeMap<String, TaggedAddress>>,
    #[serde(default)]
    pub(super) meta: Option<BTreeMap<String, String>>,
    #[serde(default)]
    pub(super) port: Option<i64>,
    #[serde(default)]
    pub(super) weights: Option<Weights>,
    #[serde(default)]
    pub(super) locality: Option<Place>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct TaggedAddress {
    pub(super) address: String,
    #[serde(default)]
    pub(super) port: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Weights {
    #[serde(default)]
    pub(super) passing: Option<i64>,
    #[serde(default)]
    pub(super) warning: Option<i64>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Place {
    #[serde(default)]
    pub(super) region: String,
    #[serde(default)]
    pub(super) zone: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
pub(super) struct Check {
    #[serde(rename = "CheckID", default)]
    pub(super) id: String,
    pub(super) status: String,
}

impl Entry {
    /// The name of the instance. Service ids are unique only on their node.
    pub(super) fn instance(&self) -> String {
        format!("{}/{}", self.node.name, self.service.id)
    }
}

/// Returns the name of an entry that is otherwise unreadable.
pub(super) fn instance_of(entry: &Value) -> Option<String> {
    let node = entry.get("Node")?.get("Node")?.as_str()?;
    let id = entry.get("Service")?.get("ID")?.as_str()?;
    Some(format!("{node}/{id}"))
}
