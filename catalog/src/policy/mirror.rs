//! Mirrors: copies of calls for another service.

use std::fmt;

use super::Percent;
use crate::finding::Spot;
use crate::name::ServiceName;

/// A copy of some calls to another service, whose responses are ignored.
#[derive(Debug, Clone, Eq)]
pub struct Mirror {
    /// The service, called at the port of the same number.
    pub service: ServiceName,
    /// The share of calls.
    pub percent: Percent,
    /// Its location in policy.
    pub spot: Spot,
}

impl PartialEq for Mirror {
    fn eq(&self, other: &Self) -> bool {
        (&self.service, self.percent) == (&other.service, other.percent)
    }
}

impl fmt::Display for Mirror {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} go to {} as well", self.percent, self.service)
    }
}
