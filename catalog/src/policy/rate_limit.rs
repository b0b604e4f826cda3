//! Rate limits: how often something may be asked of each sidecar of a service.

mod global;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use global::{
    Descriptor, Entry, GlobalHttpLimit, GlobalTcpLimit, HeaderCondition, RateLimitService, Wanted,
};

use super::PathRegex;

/// So many in a time, and so many more at once where fewer were asked before.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// How many in the time of `unit`, at least 1.
    pub number: u32,
    /// The time.
    pub unit: RateUnit,
    /// How many more at once; together with `number` at most `u32::MAX`.
    pub burst: u32,
}

/// The time that a rate is about.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RateUnit {
    /// A second.
    Second,
    /// A minute.
    Minute,
    /// An hour.
    Hour,
}

impl RateUnit {
    /// All of them, by the words of policy.
    pub const ALL: [(&'static str, Self); 3] =
        [("second", Self::Second), ("minute", Self::Minute), ("hour", Self::Hour)];

    /// How long it is.
    pub fn duration(self) -> Duration {
        Duration::from_secs(match self {
            Self::Second => 1,
            Self::Minute => 60,
            Self::Hour => 3600,
        })
    }
}

impl fmt::Display for Rate {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { number, unit, burst } = self;
        let unit = RateUnit::ALL.iter().find(|(_, one)| one == unit).map_or("", |(word, _)| word);
        write!(f, "{number} per {unit}")?;
        if *burst > 0 {
            write!(f, ", {burst} more at once")?;
        }
        Ok(())
    }
}

/// How many requests are let through, and what the others get.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalHttpLimit {
    /// How many.
    pub rate: Rate,
    /// What the others are answered with, from 400 to 599.
    pub status: u16,
    /// Headers of that answer, by lower-case name.
    pub headers: Vec<(Arc<str>, Arc<str>)>,
}

impl LocalHttpLimit {
    /// What the others are answered with where it is not said.
    pub const STATUS: u16 = 429;
}

/// A limit of its own for requests of some paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitedRoute {
    /// Which paths.
    pub path: PathRegex,
    /// `rate_limit.local.http`.
    pub local_http: Option<LocalHttpLimit>,
    /// `rate_limit.global.descriptors`: what the rate limit service is told of these instead. Never empty.
    pub descriptors: Option<Vec<Descriptor>>,
}
