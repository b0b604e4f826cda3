//! Rate limits of requests and connections at the sidecars of a service.

mod global;

use std::fmt;
use std::sync::Arc;
use std::time::Duration;

pub use global::{
    Descriptor, DescriptorEntry, GlobalHttpLimit, GlobalTcpLimit, HeaderCondition, HeaderPattern,
    RateLimitService,
};

use super::PathRegex;

/// A rate with a burst: `number` per unit, and `burst` more at once after a quiet time.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Rate {
    /// The number per unit, at least 1.
    pub number: u32,
    /// The unit.
    pub unit: RateUnit,
    /// The additional number at once; together with `number` at most `u32::MAX`.
    pub burst: u32,
}

/// The unit of time of a rate.
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

    /// Its length.
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

/// A limit of the requests at one sidecar, and the response to rejected ones.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LocalHttpLimit {
    /// The rate of allowed requests.
    pub rate: Rate,
    /// The status of rejected requests, from 400 to 599.
    pub status: u16,
    /// The headers of that response, by lower-case name.
    pub headers: Vec<(Arc<str>, Arc<str>)>,
}

impl LocalHttpLimit {
    /// The default status of rejected requests.
    pub const STATUS: u16 = 429;
}

/// Rate limits for requests with certain paths.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LimitedRoute {
    /// The paths.
    pub path: PathRegex,
    /// `rate_limit.local.http`.
    pub local_http: Option<LocalHttpLimit>,
    /// `rate_limit.global.descriptors`: the descriptors of these requests, instead of those of the service. Never empty.
    pub descriptors: Option<Vec<Descriptor>>,
}
