//! Shadows of calls: to see what somebody else would make of them.

use std::fmt;

use super::Percent;
use crate::finding::Spot;
use crate::name::ServiceName;

/// Some calls go to another service as well, whose answers nobody waits for.
#[derive(Debug, Clone, Eq)]
pub struct Mirror {
    /// To this one, at the port of the same number.
    pub service: ServiceName,
    /// So many of them.
    pub percent: Percent,
    /// Where it is written.
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
