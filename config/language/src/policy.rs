//! Policy: from documents to a validated mesh specification. It is pure: `ironmesh-config-sources` owns the
//! places where documents come from.
//!
//! It has three steps. First, each document is parsed, and its tables are read into a part. Then the parts
//! are put together into a draft, and references and the graph of splits are checked across documents. Last,
//! if no finding is an error, the draft becomes the specification. Each step reports all that it finds, and
//! skips an object whose problem is reported already.

mod coverage;
mod damage;
mod draft;
mod egress;
mod endpoints;
mod exits;
mod group_match;
mod http_route;
mod http_route_group;
mod identity_binding;
mod ingress;
mod ingress_backend;
mod labels;
mod level;
mod loaded;
mod loader;
mod locality;
mod namespace;
mod nothing_to_call;
mod outline;
mod outside;
mod part;
mod reading;
mod references;
mod regex;
mod repeats;
mod retry;
mod service;
mod shadowed;
mod single_tables;
mod splits;
mod tcp_route;
mod telemetry;
#[cfg(test)]
mod tests;
mod traffic_split;
mod traffic_target;
mod treatments;
mod udp;
mod unreachable;
mod upstream_settings;
mod upstream_traffic_setting;
mod upstreams;
mod without_endpoints;

pub use crate::document::Document;
pub(crate) use level::SCOPES;
pub use loaded::{Loaded, revision_of};
pub use loader::Loader;
pub use telemetry::log_operators;

/// Checks `documents`, and makes a specification of them. Their order has no effect.
pub fn load_documents(documents: impl IntoIterator<Item = Document>) -> Loaded {
    Loader::default().load_documents(documents)
}
