//! Analysis of the model: whether policy allows a call and why ([`verdict`]), what differs between two
//! snapshots ([`Difference`]), and where traffic splits send calls ([`routing`]).
//!
//! This crate owns the answers of `policy explain` and `policy plan`, as data. It never decides what is
//! compiled: what a rule allows, where a split leads and who may call is decided in the model, for this
//! crate and for the compiler alike. No IO, no clock, no protobuf.

pub mod difference;
pub mod routing;
pub mod verdict;

pub use difference::Difference;
pub use verdict::{Question, Request, Verdict};
