//! Scenarios that hold in both variants of the protocol: each is written once, and runs with both.
//!
//! In a short scenario a server publishes a set, and a client subscribes, ACKs or NACKs, and ends
//! with that set. The client is a model ([`client::Client`]). `delta/tests/client.rs` and
//! `sotw/tests/client.rs` define how it speaks its variant. Where the variants differ, a scenario
//! names both with [`dialect::Dialect::either`]. Rules of one variant only are in the tests of that
//! variant.
//!
//! R1 to R64 and "rule 1" to "rule 10" are those of docs/reference/xds-rules.md.
//! docs/conformance.md lists the tests of each rule.

#[cfg(test)]
/// Makes a test of each scenario for either variant: `…::delta::name` and `…::sotw::name`.
macro_rules! in_both_variants {
    ($($scenario:ident),+ $(,)?) => {
        mod delta {
            $(#[test] fn $scenario() { super::$scenario::<crate::delta::DeltaStream>(); })+
        }
        mod sotw {
            $(#[test] fn $scenario() { super::$scenario::<crate::sotw::SotwStream>(); })+
        }
    };
}

#[cfg(test)]
mod answers;
pub(crate) mod client;
#[cfg(test)]
mod convergence;
pub(crate) mod dialect;
#[cfg(test)]
mod limits;
#[cfg(test)]
mod order;
#[cfg(test)]
mod reconnect;
#[cfg(test)]
mod separate;
#[cfg(test)]
mod subscriptions;
pub(crate) mod walk;
mod wanted;
#[cfg(test)]
mod warming;
