//! The policy compiler: the resources of a proxy, as a pure function of the snapshot and the proxy.
//!
//! This crate owns the shape of every resource that Envoy gets. It has no IO, no clock and no
//! sockets, and cannot fail: what cannot be compiled is omitted, closed, and reported as a finding.
//!
//! A [`Compiler`] compiles shared resources once and follows the mesh: endpoints and inbound routes
//! per service port, outbound resources per service account. A proxy's own resources (its
//! listeners' addresses, its applications, its upstreams) are a small overlay.
//!
//! Start reading at [`Compiler::compile`].

mod audit_log;
mod caller_name;
mod callers;
mod compiler;
mod condition;
mod destination;
mod egress;
mod external;
pub mod fallback;
pub mod handover;
pub mod health_discovery;
mod held_open;
mod http;
mod inbound;
mod index;
mod ingress;
mod keepalive;
mod limits;
mod mesh_view;
mod mirrors;
pub mod names;
pub mod origin;
mod outbound;
mod overrides;
mod plaintext;
mod rate_limit;
mod rbac;
mod reads;
pub mod rendering;
pub mod resource_difference;
mod revoked;
mod role;
mod secret;
mod shape;
mod shared;
mod splits;
mod tcp;
mod telemetry;
#[cfg(test)]
mod tests;
mod tls;
mod treatment;
mod upstream;
mod withdrawals;

pub use compiler::{Compiled, Compiler};
pub use role::ResourceRole;
pub use shared::Changes;
