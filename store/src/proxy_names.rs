//! The names of proxies as records of their own.
//!
//! Two records of new proxies have different keys, so two control planes could store both with one name. Each of them also
//! stores the record of the name, and the second transaction is a conflict.

use ironmesh_catalog::{ProxyId, ProxyName, UnknownFields};
use serde::{Deserialize, Serialize};

use crate::record_store::TableName;
use crate::record_table::Record;

/// The proxy to which a name was given last. Its join record decides whether it still has the name.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NamedProxy {
    /// The name.
    pub name: ProxyName,
    /// The proxy.
    pub proxy: ProxyId,
    /// The fields of a newer version, which are stored again with the record.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl NamedProxy {
    /// A proxy with this name.
    pub fn new(name: ProxyName, proxy: ProxyId) -> Self {
        Self { name, proxy, unknown: UnknownFields::default() }
    }
}

impl Record for NamedProxy {
    const TABLE: TableName = TableName("proxy_names");
    const SCHEMA: u64 = 1;

    fn key(&self) -> String {
        self.name.to_string()
    }
}
