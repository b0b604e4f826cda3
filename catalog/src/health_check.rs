//! Health checks: how the application of a service is probed on its own machine, as policy defines it.
//!
//! This module owns the definition as data. It never probes, and never decides what callers get.

use std::fmt;
use std::time::Duration;

use serde::{Deserialize, Serialize};

use crate::name::Name;

/// How the application of one service port is probed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct HealthCheck {
    /// The service port whose application is probed.
    pub port: u16,
    /// What is asked of the application.
    pub probe: Probe,
    /// The time between two probes.
    pub interval: Duration,
    /// The time limit of one probe, with its connection.
    pub timeout: Duration,
    /// So many failures in a row make a healthy application unhealthy.
    pub unhealthy_threshold: u32,
    /// So many successes in a row make an unhealthy application healthy.
    pub healthy_threshold: u32,
}

impl HealthCheck {
    /// The default interval.
    pub const INTERVAL: Duration = Duration::from_secs(5);
    /// The default time limit of a probe.
    pub const TIMEOUT: Duration = Duration::from_secs(2);
    /// The default number of failures.
    pub const UNHEALTHY_THRESHOLD: u32 = 3;
    /// The default number of successes.
    pub const HEALTHY_THRESHOLD: u32 = 2;
}

/// What a probe asks of an application.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "kind")]
pub enum Probe {
    /// `GET` of a path, without following redirects.
    Http {
        /// The path, with its query.
        path: String,
        /// The `Host` header. Default: the address and port that is probed.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        host: Option<String>,
        /// The expected statuses.
        statuses: Vec<StatusRange>,
        /// Whether the application speaks HTTP/2 without TLS, not HTTP/1.1.
        #[serde(default)]
        http2: bool,
    },
    /// A connection, which is closed at once.
    Tcp,
    /// `grpc.health.v1.Health/Check`.
    Grpc {
        /// The service in the request. Default: empty, which means the whole server.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        service: Option<String>,
    },
    /// A command that the settings of the machine define: policy must not run programs of its choice on machines.
    Command {
        /// Its name in the settings.
        name: Name,
    },
    /// A probe of a later version.
    #[serde(other)]
    Unknown,
}

impl fmt::Display for Probe {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Http { .. } => "http",
            Self::Tcp => "tcp",
            Self::Grpc { .. } => "grpc",
            Self::Command { .. } => "command",
            Self::Unknown => "unknown",
        })
    }
}

/// A range of HTTP statuses, both ends included.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct StatusRange {
    /// The first one.
    pub first: u16,
    /// The last one.
    pub last: u16,
}

impl StatusRange {
    /// Every final status.
    const ALL: std::ops::RangeInclusive<u16> = 200..=599;

    /// Parses `204` or `200-399`.
    pub fn parse(text: &str) -> Option<Self> {
        let (first, last) = text.split_once('-').unwrap_or((text, text));
        let (first, last) = (first.trim().parse().ok()?, last.trim().parse().ok()?);
        let is_valid = first <= last && Self::ALL.contains(&first) && Self::ALL.contains(&last);
        is_valid.then_some(Self { first, last })
    }

    /// Whether it includes a status.
    pub fn contains(self, status: u16) -> bool {
        (self.first..=self.last).contains(&status)
    }
}

impl Default for StatusRange {
    /// Every success.
    fn default() -> Self {
        Self { first: 200, last: 299 }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn status_ranges_parse_and_contain_both_ends() {
        let range = StatusRange::parse("200-399").unwrap();
        assert!(range.contains(200) && range.contains(399) && !range.contains(400));
        assert_eq!(StatusRange::parse("204"), Some(StatusRange { first: 204, last: 204 }));
        for bad in ["", "abc", "100", "600", "300-200", "200-", "-200", "2e2"] {
            assert_eq!(StatusRange::parse(bad), None, "{bad}");
        }
    }

    #[test]
    fn probe_of_a_later_version_is_unknown() {
        let probe: Probe = serde_json::from_str(r#"{"kind":"quic","port":1}"#).unwrap();
        assert_eq!(probe, Probe::Unknown);
    }
}
