//! The xDS engine: resource sets in, streams out.
//!
//! It knows no mesh. Whoever uses it says which clients may connect ([`Admission`]) and what each is
//! to have ([`Hub::publish`]); the engine keeps each client at that, by the letter of the xDS
//! protocol, and tells what the clients have taken and refused ([`Hub::status`]).
//!
//! Inside is a state machine per stream, without sockets and clocks: [`delta::DeltaStream`] or
//! [`sotw::SotwStream`]. Around it is a task per stream that moves its inputs and outputs.
//!
//! Served are the aggregated service and those of clusters, endpoints, listeners, routes and secrets,
//! each in both variants.

mod body;
mod counters;
pub mod delta;
mod hub;
mod listener;
mod separate;
mod service;
#[cfg(feature = "simulated")]
pub mod simulated;
pub mod sotw;
pub mod stream;
mod subscription;
#[cfg(test)]
mod test_resources;
mod variant;

pub use counters::Counters;
pub use hub::{ClientKey, ClientNews, ClientStatus, Hub, Nack};
pub use listener::{Peer, serve};
pub use service::{Admission, Refusal};
