//! Tests of the whole reconciler with simulated proxies.

mod clock;
mod convergence;
mod cordon;
mod cost;
mod duplicates;
mod endpoints;
mod finding_log;
mod harness;
mod health;
mod leave;
mod local_ports;
mod log;
mod nack_tracker;
mod quarantine;
mod recorded_cost;
mod revocation;
mod rollout_order;
mod serving;
