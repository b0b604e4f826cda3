//! Golden tests: a policy folder and the proxies of a mesh go in, the resources of each proxy and all
//! findings come out, as files.
//!
//! A case is a folder below `cases/`: `policy/` with its documents, `proxies.toml` with who joined,
//! and `expect/` with what must come out. `UPDATE_GOLDEN=1` rewrites the last; read what it wrote.
//! What is in `expect/` is a claim, so it is checked twice more: nothing may refer to what is not
//! there, and a real Envoy must accept it.
//!
//! No network, no clock: certificates are placeholder texts, except where Envoy looks at them.

#![expect(
    clippy::unwrap_used,
    clippy::panic,
    clippy::indexing_slicing,
    reason = "test code: a panic is a failed test"
)]

mod bytes;
mod case;
mod certificates;
mod envoy;
mod examples;
mod expectation;
mod importing;
mod policies;
mod references;
mod regexes;
mod rendering;
mod scale;
mod stories;
mod telemetry;
mod verdicts;
