//! Application health: what the probes beside the applications report, by proxy and service port.
//!
//! It is soft state, which the control plane keeps in memory. This module owns it as data. It never decides who may report.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use imbl::OrdMap;
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::health_check::HealthCheck;
use crate::name::ServicePort;
use crate::proxy::ProxyId;

/// The state of an application by its probes.
#[derive(
    Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum ApplicationState {
    /// It passes its health check.
    Healthy,
    /// It fails its health check, which it has passed before.
    Unhealthy,
    /// No probe has succeeded yet, or there is no report. Callers use it, as without a health check.
    #[default]
    #[serde(other)]
    Unknown,
}

impl fmt::Display for ApplicationState {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Unknown => "unknown",
            Self::Healthy => "healthy",
            Self::Unhealthy => "unhealthy",
        })
    }
}

/// The component that probes an application.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum HealthSource {
    /// The endpoints provider.
    Provider,
    /// The agent of the machine.
    Agent,
    /// The Envoy of the machine, which runs without an agent.
    Envoy,
}

impl fmt::Display for HealthSource {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Provider => "provider",
            Self::Agent => "agent",
            Self::Envoy => "envoy",
        })
    }
}

/// The health of one application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ApplicationHealth {
    /// Its state.
    pub state: ApplicationState,
    /// Since when it has this state.
    pub since: Timestamp,
    /// Why it is unhealthy or unknown, if the probe reported that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<Arc<str>>,
    /// The component that probes it.
    pub source: HealthSource,
}

/// An application of a proxy that policy probes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProbedApplication {
    /// The service port that it serves.
    pub service_port: ServicePort,
    /// The port on which it listens.
    pub target: u16,
    /// How it is probed.
    pub check: HealthCheck,
}

impl ProbedApplication {
    /// The most probed applications of one proxy. The rest have no health.
    pub const MAX: usize = 256;
}

/// The health of the applications of one proxy that serve a service port, by the ports on which they listen.
pub type PortHealth = BTreeMap<u16, ApplicationHealth>;

/// The application health of the mesh. Applications without a report are missing.
pub type ReportedApplications = OrdMap<(ProxyId, ServicePort), Arc<PortHealth>>;
