//! The policy compiler: what a proxy is to have, as a pure function of the snapshot and the proxy.
//!
//! This crate owns the shape of every resource that Envoy gets. It does no IO, sees no clock and no
//! socket, and cannot fail: where something cannot be compiled it leaves that out, closed, and
//! returns a finding.
//!
//! What proxies share is compiled once by a [`Compiler`], which follows the mesh: endpoints and inbound routes per service
//! port, everything outbound per service account. What is a proxy's own (its listeners' addresses,
//! its applications, its upstreams) is a small overlay.
//!
//! Start reading at [`Compiler::compile`].

mod authorization;
mod compiler;
mod condition;
mod destination;
mod egress;
mod external;
pub mod forecast;
pub mod handover;
mod held_open;
mod http;
mod inbound;
mod index;
mod ingress;
mod keepalive;
mod limits;
mod mirrors;
pub mod names;
pub mod origin;
mod outbound;
mod overrides;
mod plaintext;
mod rate_limit;
pub mod rendering;
mod secret;
mod shape;
mod shared;
mod splits;
pub mod stand_in;
mod tcp;
mod telemetry;
#[cfg(test)]
mod tests;
mod tls;
mod told;
mod treatment;
mod upstream;

pub use compiler::{Compiled, Compiler};
pub use shared::Changes;
