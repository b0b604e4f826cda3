//! Levels of objects with settings of calls. For each setting, the most specific level wins.

use std::fmt;

use crate::name::{Name, ServiceName};

/// The services to which an object applies, most specific first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum Level {
    /// One service.
    Service(ServiceName),
    /// All services of a namespace.
    Namespace(Name),
    /// All services of the mesh.
    Mesh,
}

impl fmt::Display for Level {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Service(service) => write!(f, "service `{service}`"),
            Self::Namespace(namespace) => write!(f, "namespace `{namespace}`"),
            Self::Mesh => f.write_str("the mesh"),
        }
    }
}
