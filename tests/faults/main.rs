//! The fault table: each row breaks one part of a mesh of real Envoys under load, counts failed requests,
//! and compares them with `ironmesh status` (design, invariant 12).
//!
//! The rule of every row: status never reports a healthy mesh while requests fail. Faults that need more than a mesh
//! on one machine, or no traffic, have tests in other suites:
//!
//! | fault | test |
//! |---|---|
//! | clock behind or ahead, then corrected | `envoy`: `clocks` |
//! | state removed and a new authority | `envoy`: `lost_state`; `cli`: `state` |
//! | full disk, edited record | `cli`: `state` |
//! | log that cannot be written, signals | `cli`: `signals` |
//! | hung control plane, as commands see it | `cli`: `hung` |
//! | removal held back, emptied folder over a restart | `cli`: `status` |
//! | Consul: token, wrong answers, partition, servers that die | `consul`: `faults` |
//! | Azure: outage, throttling, deleted scale set | `azure` |
//! | NACKed listener after a restart | `envoy`: `listener_nack` |
//! | all endpoints of a service lost | `envoy`: `outages` |
//! | flood of silent connections | `it`: `crowds` |

#![expect(
    clippy::unwrap_used,
    clippy::print_stderr,
    reason = "test code: a panic is a failed test, and the table is what it prints"
)]

mod control_plane;
mod mesh;
mod policy;
mod proxies;
