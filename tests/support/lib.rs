//! Shared support of the test suites: addresses, processes, a whole mesh with real Envoys, and
//! the clients, applications and load in it.
//!
//! Tests wait only with [`eventually()`], which probes a state until a deadline. They end only
//! processes that they started. Start reading at [`Mesh`].
//!
//! ```text
//! Programs → Mesh (control plane) → Envoy, as many as the test has proxies
//!                                   ↑ Http1Connection, Http2Connection, Load
//!                                   ↓ App
//! ```

#![expect(
    clippy::unwrap_used,
    clippy::expect_used,
    clippy::panic,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and what it prints belongs to its report"
)]

pub mod addresses;
pub mod app;
pub mod attestation;
pub mod authority;
pub mod azure;
pub mod browser;
pub mod client;
pub mod clock;
pub mod collector;
pub mod consul;
pub mod dns;
pub mod envoy;
pub mod etcd;
pub mod eventually;
pub mod guide;
pub mod ledger;
pub mod load;
pub mod long_connections;
pub mod mesh;
pub mod operator;
pub mod process;
pub mod programs;
pub mod prometheus;
pub mod proxy_options;
pub mod random;
pub mod rate_limits;
pub mod tls;
pub mod xds;

pub use addresses::Loopback;
pub use app::{App, request_name};
pub use azure::FakeAzure;
pub use browser::Browser;
pub use client::{Http1Connection, Http2Connection, Response, get_once};
pub use collector::Collector;
pub use consul::Consul;
pub use dns::NameServer;
pub use envoy::Envoy;
pub use etcd::Etcd;
pub use eventually::eventually;
pub use ledger::{Ledger, TcpConnection};
pub use load::{Load, LoadReport, REQUESTS_PER_FAULT};
pub use long_connections::LongConnections;
pub use mesh::Mesh;
pub use programs::{Programs, require_bench, require_consul, require_etcd, require_ironmesh};
pub use prometheus::Prometheus;
pub use proxy_options::ProxyOptions;
pub use rate_limits::RateLimits;
