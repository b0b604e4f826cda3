//! Analysis of a snapshot: verdicts on calls ([`verdict`]), differences between snapshots ([`Difference`]), the ports that
//! an account may call ([`reach`]), the callers of a port ([`access`]) and the destinations of traffic splits
//! ([`routing`]); and verdicts as text for people ([`text`]).
//!
//! This crate owns the answers of `policy explain` and `policy plan`, as data and as text. It never decides what policy
//! means: the model decides that for this crate and for the compiler. No IO, no clock, no protobuf.

pub mod access;
pub mod difference;
pub mod reach;
pub mod routing;
pub mod text;
pub mod verdict;
mod written_target;

pub use difference::Difference;
pub use verdict::{Question, Request, Verdict};
