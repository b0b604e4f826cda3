//! The floor: what a server costs that computes nothing. It sends all clients the same pre-encoded
//! frames, over the same TLS and the same HTTP/2 as a control plane.
//!
//! It is a process of its own, so that what it takes can be told from what the generator takes.

mod child;
mod connection;
mod frames;
mod server;

pub(crate) use child::Floor;
pub(crate) use frames::write_recording;
pub use server::{Options, serve};
