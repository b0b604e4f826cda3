//! The xDS server in this process, on loopback with real mutual TLS, gRPC's own client, and an
//! Envoy without a mesh.

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    reason = "test code: a panic is a failed test"
)]

mod access_logs;
mod bare_envoy;
mod bystander;
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
mod impostors;
mod incomplete_requests;
mod malformed_resource;
mod nacks;
mod pushes;
mod separate;
mod server;
mod services;
mod shutdown;
mod sotw;
mod status;
mod streams;
mod unhealthy_endpoints;
