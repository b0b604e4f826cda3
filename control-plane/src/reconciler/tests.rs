//! The reconciler as a whole, with clients that are simulated.

mod clock;
mod convergence;
mod cost;
mod duplicates;
mod endpoints;
mod finding_log;
mod harness;
mod log;
mod nack_tracker;
mod order;
mod revocation;
