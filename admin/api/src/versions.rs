//! The JSON types of the report about the versions of all proxies.

use ironmesh_catalog::{ProxyId, ProxyName};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// The most proxies below the minimum that a report names, for each component.
pub const MAX_OUTDATED: usize = 100;

/// The versions of the programs of all proxies in use, with their last known version if they are disconnected.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionReport {
    /// The Envoys.
    pub envoy: ComponentVersions,
    /// The agents.
    pub agent: ComponentVersions,
    /// How many proxies are run without an agent, as far as the control plane knows.
    pub without_agent: usize,
}

/// The versions of one program.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ComponentVersions {
    /// The oldest supported version.
    pub minimum: String,
    /// How many proxies have each version, the newest first. Those whose version is unknown come last.
    pub versions: Vec<VersionCount>,
    /// How many proxies have a version below the minimum.
    pub below_minimum: usize,
    /// These proxies by name, at most [`MAX_OUTDATED`].
    pub outdated: Vec<OutdatedProxy>,
}

/// How many proxies have a version.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct VersionCount {
    /// The version; none if it is unknown: the proxy has never connected, or its agent does not report it.
    pub version: Option<String>,
    /// How many proxies have it.
    pub count: usize,
    /// Whether it is below the minimum.
    #[serde(default)]
    pub below_minimum: bool,
}

/// A proxy with a version below the minimum.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OutdatedProxy {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// Its version, as it was known last.
    pub version: String,
}
