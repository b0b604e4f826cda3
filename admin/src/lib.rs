//! The admin API of a running control plane: server and client.
//!
//! Two listeners serve it. The Unix socket `<state>/admin.sock` (mode 0600) may issue and change. The TCP listener, for
//! people, probes and dashboards, may only read, because it requires no credentials. `ironmesh-api` has the JSON types of
//! both sides. This crate keeps no state: all answers come from the [`ControlPlane`] that is passed in.

mod client;
mod server;
mod socket_path;

pub use client::{Client, ClientError};
pub use server::{
    ApiError, BindError, Cancellation, ControlPlane, NextChange, Operator, WriteExport,
    bind_socket, serve_reads, serve_socket,
};
pub use socket_path::{SocketPathTooLong, check_socket_path};
