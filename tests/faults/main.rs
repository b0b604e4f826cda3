//! The fault table: each row breaks one part of a mesh of real Envoys under load, counts what callers lose, and
//! compares that with what `ironmesh status` reports (design, invariant 12).
//!
//! The rule of every row: no state in which requests fail is reported as healthy. Faults of the clock, of the
//! disk and of the endpoints providers are in the suites `envoy`, `cli`, `consul` and `azure`.

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and the table is what it prints"
)]

mod control_plane;
mod policy;
mod proxies;
mod shop;
