//! The floor: a reference server that computes nothing. It sends pre-encoded frames to all clients, over the same TLS and
//! HTTP/2 as a control plane.
//!
//! It is a separate process, so that its CPU time and memory are separate from those of the generator.

mod connection;
mod frames;
mod server;

pub use server::{FloorOptions, serve};
