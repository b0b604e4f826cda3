//! What holds in both variants of the protocol: each story is told once, and run with both.
//!
//! A story is short: given this set, a client subscribes, takes or refuses, and has that. The client is
//! a model ([`client::Client`]); how it speaks its variant is in `delta/tests/client.rs` and
//! `sotw/tests/client.rs`. Where the variants themselves differ, in what they can say, a story names
//! both with [`dialect::Dialect::either`]. What only one of them knows is in the tests of that one.
//!
//! R1 to R64 and "rule 1" to "rule 10" are those of docs/reference/xds-rules.md, and docs/conformance.md
//! says which tests hold which.

#[cfg(test)]
/// Makes a test of each of these scenarios for either variant: `…::delta::name` and `…::sotw::name`.
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
