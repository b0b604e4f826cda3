//! The name of a sidecar driver, as records and responses carry it.

use std::fmt;
use std::str::FromStr;

use serde::{Deserialize, Serialize};

use crate::name::{InvalidName, Name};

/// The name of a sidecar driver: of the program that carries the traffic of a proxy.
///
/// It is a name and not a list of the known drivers, so that a record of a newer version keeps its driver. The
/// registries of the drivers know which names exist.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(transparent)]
pub struct DriverName(Name);

impl DriverName {
    /// The name as text.
    pub fn as_str(&self) -> &str {
        self.0.as_str()
    }
}

/// Envoy: the driver of records and responses that name none.
impl Default for DriverName {
    fn default() -> Self {
        Self(Name::known("envoy"))
    }
}

impl fmt::Display for DriverName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

impl FromStr for DriverName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        Name::new(text).map(Self)
    }
}
