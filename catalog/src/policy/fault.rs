//! Faults that are made of calls on purpose, to see what callers make of them.

use std::fmt;
use std::time::Duration;

/// What becomes of some calls.
///
/// Invariant: it says one of both at least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Fault {
    /// They wait.
    pub delay: Option<Delay>,
    /// They are answered by the caller's sidecar and go nowhere.
    pub abort: Option<Abort>,
}

/// How long calls wait before they go on their way. That is no part of their time limit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delay {
    /// For so long.
    pub duration: Duration,
    /// So many of them.
    pub percent: Percent,
}

/// With what calls are answered.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Abort {
    /// With this.
    pub with: AbortWith,
    /// So many of them.
    pub percent: Percent,
}

/// An answer that is no answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum AbortWith {
    /// A status of HTTP, from 200 to 599.
    Status(u16),
    /// A status of gRPC, from 1 to 16.
    GrpcStatus(u16),
}

/// A share in millionths, at most all of them.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Percent(pub u32);

impl Percent {
    /// All of them.
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
