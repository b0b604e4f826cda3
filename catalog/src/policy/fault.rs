//! Fault injection: delays and aborts of calls, to test callers.

use std::fmt;
use std::time::Duration;

/// The faults of some calls.
///
/// Invariant: at least one of both is set.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// The delay.
    pub delay: Option<Delay>,
    /// The abort: the caller's sidecar answers, and forwards nothing.
    pub abort: Option<Abort>,
}

/// A delay before calls are forwarded. It does not count towards their time limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    /// Its duration.
    pub duration: Duration,
    /// The share of calls.
    pub percent: Percent,
}

/// An abort of calls.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort {
    /// The response.
    pub with: AbortWith,
    /// The share of calls.
    pub percent: Percent,
}

/// The response of an abort.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortWith {
    /// An HTTP status, from 200 to 599.
    Status(u16),
    /// A gRPC status, from 1 to 16.
    GrpcStatus(u16),
}

/// A share in millionths, at most 1,000,000.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(pub u32);

impl Percent {
    /// Every call.
    pub const ALL: Self = Self(1_000_000);
}

impl fmt::Display for Percent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (whole, rest) = (self.0 / 10_000, self.0 % 10_000);
        let digits = format!("{whole}.{rest:04}");
        write!(f, "{} %", digits.trim_end_matches('0').trim_end_matches('.'))
    }
}

impl fmt::Display for Fault {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { delay, abort } = self;
        if let Some(Delay { duration, percent }) = delay {
            write!(f, "{percent} wait {duration:?}")?;
        }
        if let Some(Abort { with, percent }) = abort {
            f.write_str(if delay.is_some() { "; " } else { "" })?;
            return match with {
                AbortWith::Status(status) => write!(f, "{percent} get {status}"),
                AbortWith::GrpcStatus(status) => {
                    write!(f, "{percent} get the gRPC status {status}")
                }
            };
        }
        Ok(())
    }
}
