//! The xDS server in this process, on loopback with real mutual TLS, gRPC's own client, and an Envoy without
//! a mesh.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a panic is a failed test"
)]

mod bare_envoy;
mod bystander;
mod calls;
mod client;
mod connections;
mod cost;
mod crowds;
mod excess;
mod floods;
mod frame_floods;
mod frames;
mod grpc;
mod hand_made;
mod health;
mod pushes;
mod refusers;
mod separate;
mod server;
mod services;
mod shutdown;
mod sotw;
mod status;
mod strangers;
mod streams;
mod unfinished;
mod unwell;
mod wholesale;
