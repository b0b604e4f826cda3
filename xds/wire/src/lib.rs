//! Envoy's messages as bytes: the only crate that names `envoy-types`.
//!
//! It owns how a resource becomes bytes (canonical, so that the same input gives the same bytes in
//! every process, and a version is the hash of the content), how frames are put together from
//! shared bytes, and how bytes become JSON for people. It knows no mesh and opens no socket.
//!
//! Start reading at [`Resource`] and [`ResourceSet`].

mod access_log;
mod by_type;
mod canonical;
mod delta;
mod descriptors;
mod digest;
mod error_detail;
mod frame;
mod health_discovery;
mod json;
mod names;
mod node;
mod plans;
mod record;
mod redacted;
mod references;
mod resource;
mod resource_map;
mod set;
mod sotw;

pub use access_log::{CallLog, LoggedCall, LoggedRequest};
pub use by_type::ByType;
pub use delta::{DeltaMessage, DeltaRequest, DeltaResponse};
pub use envoy_types::pb;
pub use error_detail::ErrorDetail;
pub use frame::frame;
pub use health_discovery::{EndpointReport, HealthMessage, ProbeResult};
pub use json::message_json;
pub use names::{InitialVersions, NameList};
pub use node::{EnvoyVersion, Node};
pub use resource::{Discoverable, Resource, ResourceType, Version, any};
pub use resource_map::{MapDifference, OrderedLookup, ResourceMap};
pub use set::{ResourceSet, changed_names, iter_changed_names};
pub use sotw::{SotwRequest, SotwResponse};
