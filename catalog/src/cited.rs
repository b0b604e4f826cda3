//! Citations: the policy object, with its location, from which a verdict, a setting or a difference follows.

use std::fmt;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::finding::Spot;
use crate::policy::telemetry::Telemetry;
use crate::policy::{Egress, HttpRoute, IngressBackend, Retry, TrafficTarget};

/// A cited policy object with its location.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema)]
pub struct Cited {
    /// Its kind and name: ``traffic target `default/buyers` ``.
    pub object: String,
    /// Its location in policy.
    pub spot: Spot,
}

impl Cited {
    /// A traffic target.
    pub fn target(target: &TrafficTarget) -> Self {
        let object = format!("traffic target `{}/{}`", target.namespace, target.name);
        Self { object, spot: target.spot.clone() }
    }

    /// An HTTP route.
    pub fn http_route(route: &HttpRoute) -> Self {
        let object = format!("HTTP route `{}/{}`", route.namespace, route.name);
        Self { object, spot: route.spot.clone() }
    }

    /// A retry.
    pub fn retry(retry: &Retry) -> Self {
        let object = format!("retry `{}/{}`", retry.namespace, retry.name);
        Self { object, spot: retry.spot.clone() }
    }

    /// An egress.
    pub fn egress(egress: &Egress) -> Self {
        let object = format!("egress `{}/{}`", egress.namespace, egress.name);
        Self { object, spot: egress.spot.clone() }
    }

    /// An ingress backend.
    pub fn ingress_backend(policy: &IngressBackend) -> Self {
        let object = format!("ingress backend `{}/{}`", policy.namespace, policy.name);
        Self { object, spot: policy.spot.clone() }
    }
}

impl From<&Telemetry> for Cited {
    fn from(telemetry: &Telemetry) -> Self {
        let object = format!("telemetry `{}/{}`", telemetry.namespace, telemetry.name);
        Self { object, spot: telemetry.spot.clone() }
    }
}

impl fmt::Display for Cited {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({})", self.object, self.spot)
    }
}
