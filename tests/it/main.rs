//! The xDS server in this process, on loopback with real mutual TLS, and gRPC's own client.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a panic is a failed test"
)]

mod bystander;
mod client;
mod connections;
mod cost;
mod excess;
mod frames;
mod grpc;
mod pushes;
mod server;
mod services;
mod shutdown;
mod sotw;
mod strangers;
mod streams;
