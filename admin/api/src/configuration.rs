//! The JSON types of the control plane's configuration: documents of policy, providers and settings.

use ironmesh_catalog::{PolicyRevision, Provider, ServiceName};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::{IntoParams, ToSchema};

use crate::endpoints::StaleView;

/// The most services that are named for one provider.
pub const MAX_PROVIDER_SERVICES: usize = 20;

/// The query of policy documents.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, IntoParams)]
#[serde(deny_unknown_fields)]
pub struct DocumentsQuery {
    /// The revision, or the beginning of it; by default the active one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revision: Option<String>,
}

/// The documents of a policy revision.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyDocuments {
    /// The revision.
    pub revision: PolicyRevision,
    /// Whether it is active.
    pub active: bool,
    /// Its documents, by path.
    pub documents: Vec<PolicyDocument>,
}

/// A document of policy.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PolicyDocument {
    /// Its path in the policy folder.
    pub path: String,
    /// Its text.
    pub text: String,
}

/// The endpoints providers, in order of precedence.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderList {
    /// The providers.
    pub providers: Vec<ProviderReportView>,
}

/// The state of an endpoints provider.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProviderReportView {
    /// The provider.
    pub provider: Provider,
    /// Whether it queries a different system.
    pub external: bool,
    /// Its state.
    pub state: ProviderStatus,
    /// When the newest endpoints in use were learned; absent for what policy and join records have.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub learned_at: Option<Timestamp>,
    /// How many seconds ago that was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub age_seconds: Option<u64>,
    /// Since when and why it has no usable source.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stale: Option<StaleView>,
    /// The count of services with endpoints of this provider in use or excluded.
    pub services: usize,
    /// The count of these endpoints.
    pub endpoints: usize,
    /// The services whose smaller sets of endpoints are held back, at most [`MAX_PROVIDER_SERVICES`].
    pub held: Vec<ServiceName>,
    /// The count of all of these.
    pub held_count: usize,
    /// The services that it has never reported, with the reason, at most [`MAX_PROVIDER_SERVICES`].
    pub unreported: Vec<UnreportedService>,
    /// The count of all of these.
    pub unreported_count: usize,
}

/// A service that a provider has never reported.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct UnreportedService {
    /// The service.
    pub service: ServiceName,
    /// Since when, and why.
    #[serde(flatten)]
    pub stale: StaleView,
}

/// The state of an endpoints provider.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum ProviderStatus {
    /// It has answered all queries of policy, or is policy or join records and needs none.
    Synced,
    /// It has not answered all queries yet.
    Waiting,
    /// It has no usable source: the endpoints of its last answer stay in use.
    Stale,
    /// No service of policy has endpoints of it.
    Unused,
}

impl ProviderStatus {
    /// Its JSON value.
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Synced => "synced",
            Self::Waiting => "waiting",
            Self::Stale => "stale",
            Self::Unused => "unused",
        }
    }
}

/// The effective settings of a control plane. None of the values is a secret: settings only name the files of secrets.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingsView {
    /// The settings file; absent if there is none, so that all settings have their defaults.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub file: Option<String>,
    /// The settings that have a value.
    pub settings: Vec<SettingView>,
}

/// An effective setting.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SettingView {
    /// Its key, with those of its tables before it.
    pub key: String,
    /// Its value as text.
    pub value: String,
    /// Whether a change takes effect only after a restart of the control plane.
    pub needs_restart: bool,
}
