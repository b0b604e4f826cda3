//! The whole mesh with real Envoys: what an operator would see.
//!
//! Each test has a control plane, Envoys and applications of its own, on addresses of its own.
//! Without Envoy or our binary they are skipped for a person, and fail under `CI=true`.

#![expect(clippy::unwrap_used, reason = "test code: a panic is a failed test")]

mod access;
mod admin_socket;
mod agent_certificates;
mod audit;
mod authorization;
mod bookstore;
mod clocks;
mod composition;
mod connection_age;
mod convergence;
mod cordon;
mod dead_peer;
mod egress;
mod endpoints;
mod enrollment;
mod enrollment_guide;
mod enrollment_threats;
mod external;
mod flips;
mod handover;
mod harness;
mod held_open;
mod http_route_messages;
mod http_routes;
mod identity;
mod identity_binding;
mod ingress;
mod leave;
mod listener_nack;
mod lost_state;
mod machine;
mod nacks;
mod outages;
mod paths;
mod permissive;
mod policy_upstreams;
mod predictions;
mod proxies;
mod reload;
mod renewal;
mod repeated_headers;
mod restart;
mod revocation;
mod revoked_callers;
mod services;
mod show;
mod smi;
mod sotw;
mod split_flips;
mod split_mesh;
mod splits;
mod supervisor;
mod tcp;
mod telemetry;
mod traces;
mod upstream_settings;
mod websocket;
mod withdrawals;
