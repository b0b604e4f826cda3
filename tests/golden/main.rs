//! Golden tests: the input is a policy folder and the proxies of a mesh; the output, as files, is
//! each proxy's resources and all findings.
//!
//! A case is a folder below `cases/`: `policy/` with its documents, `proxies.toml` with the
//! enrolled proxies, and `expect/` with the expected output. `UPDATE_GOLDEN=1` rewrites `expect/`;
//! read what it wrote. `expect/` is a claim, so two more tests check it: every reference must
//! resolve, and a real Envoy must accept it.
//!
//! No network and no clock: certificates are placeholders, except where Envoy reads them.

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
