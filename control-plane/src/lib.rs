//! The control plane: what `ironmesh serve` runs.
//!
//! One direction of data flow: policy, the register of proxies, endpoints and certificates are inputs of one
//! reconciler task. It builds the snapshot, compiles it and publishes a resource set per proxy; the xDS engine
//! delivers the sets and reports ACKs and NACKs, which are one more input.
//!
//! This crate owns the register and enrollment, the reconciler, snapshot building, admission, rollout order, NACK
//! tracking, liveness, the lifecycle of policy, audit mode, the journal, the forecast of plans and the validation of a
//! policy with an Envoy binary. It never parses a command line, writes to stdout or installs signal handlers: the binary
//! does.

mod admission;
mod api;
mod audit;
mod change_traces;
mod enrollment;
pub mod envoy_check;
mod events;
mod findings;
mod follow_records;
pub mod forecast;
mod health_discovery;
mod health_table;
mod journal;
mod leave_table;
mod log_level;
mod logins;
mod metrics;
mod node_metadata;
mod open_files;
mod operators;
mod peers;
mod policy_source;
mod providers;
mod proxy_names;
mod question;
mod reconciler;
mod register;
mod revocation;
mod serving_table;
mod shared_changes;
mod sidecars;
mod signs_of_life;
mod silences;
mod single_addresses;
mod start;
mod state_watch;
mod stores;
#[cfg(test)]
mod test_disk;
mod traffic_table;
mod transfer;
mod versions;

pub use admission::OLDEST_ENVOY;
pub use ironmesh_store_etcd::Initialized as InitializedStore;
pub use journal::user_name;
pub use log_level::LogControl;
pub use policy_source::current_release;
pub use providers::azure_options;
pub use question::advice;
pub use signs_of_life::SignsOfLife;
pub use start::{Options, Running, start};
pub use stores::initialize_etcd_store;
pub use transfer::{ExportedMesh, ImportedMesh, StorePlace};
