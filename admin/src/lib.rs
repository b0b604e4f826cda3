//! The admin API of a running control plane: server and client.
//!
//! Four listeners serve it. The Unix socket `<state>/admin.sock` (mode 0600) is for its owner, who may do everything. The
//! admin port, for people, probes and dashboards of the machine, may only read, because it requires no credentials. Two are
//! off by default: a second socket, by which a group of operators reads, and the network listener, which requires an
//! operator's certificate or token. What a principal may do is decided by the
//! one table of operations. `ironmesh-api` has the JSON types of both sides. This crate keeps no state:
//! all answers come from the [`ControlPlane`] that is passed in.

mod client;
mod server;
mod socket_path;

pub use client::{Client, ClientError, RemoteServer};
pub use server::{
    AdminApi, ApiError, Authenticated, BindError, Cancellation, ConnectionLosses, ControlPlane,
    EventCursor, EventSource, Identity, LogLevelAccess, LoginAccess, MeshReads, NextChange,
    Operation, OperatorAccess, Permission, PresentedCredential, Principal, WriteExport,
    bind_group_socket, bind_socket, document, operations,
};
pub use socket_path::{SocketPathTooLong, check_socket_path};
