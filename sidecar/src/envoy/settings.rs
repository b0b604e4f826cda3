//! The settings of Envoy on a machine: the table `[envoy]` of `agent.toml`.

use std::num::NonZeroU32;
use std::ops::RangeInclusive;
use std::path::PathBuf;
use std::time::Duration;

use ironmesh_catalog::reserved_ports;
use jiff::{Span, SpanRelativeTo};
use serde::{Deserialize, Deserializer, de};

use crate::ports;

/// The settings of Envoy on a machine. They are checked when they are read.
#[derive(Debug, Clone, PartialEq, Eq, Deserialize)]
#[serde(try_from = "Written")]
pub struct EnvoySettings {
    /// The program: a path, or a name in `PATH`.
    pub binary: PathBuf,
    /// The log level. Default: `warning` under the supervisor, otherwise Envoy's own.
    pub log_level: Option<LogLevel>,
    /// The number of worker threads. Default: Envoy's own, one for each hardware thread.
    pub concurrency: Option<u32>,
    /// How long Envoy drains listeners and old epochs.
    pub drain_time: Duration,
    /// When an old epoch ends after a hot restart, with the connections that are left.
    pub parent_shutdown_time: Duration,
    /// The least time of a drain before a stop.
    pub drain_minimum: Duration,
    /// The most time of a drain before a stop.
    pub drain_maximum: Duration,
    /// The ports of Envoy's own listeners.
    pub ports: EnvoyPorts,
    /// The file that is merged into the bootstrap.
    pub bootstrap_overlay: Option<PathBuf>,
}

/// The ports of Envoy's own listeners on its machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct EnvoyPorts {
    /// Statistics and readiness.
    pub metrics: u16,
    /// The admin interface, where it is on a TCP port.
    pub admin: u16,
}

/// A log level of Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LogLevel {
    /// Everything.
    Trace,
    /// Each request.
    Debug,
    /// Each change of the configuration.
    Info,
    /// What may be wrong.
    Warning,
    /// What is wrong.
    Error,
    /// What ends the process.
    Critical,
    /// Nothing.
    Off,
}

/// Settings that contradict each other, or have a value that does not work.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum InvalidEnvoySettings {
    /// One time must be longer than another.
    #[error(
        "`{longer}` must be longer than `{shorter}`: {longer_s}s is not longer than {shorter_s}s"
    )]
    TooShort {
        /// The key of the longer time.
        longer: &'static str,
        /// Its seconds.
        longer_s: u64,
        /// The key of the shorter time.
        shorter: &'static str,
        /// Its seconds.
        shorter_s: u64,
    },
    /// The minimum exceeds the maximum.
    #[error("`drain_minimum` must be at most `drain_maximum`: {minimum}s is more than {maximum}s")]
    Drain {
        /// The seconds of the minimum.
        minimum: u64,
        /// The seconds of the maximum.
        maximum: u64,
    },
    /// Two listeners have one port.
    #[error("`ports.metrics` and `ports.admin` must differ: both are {0}")]
    SamePort(u16),
    /// The port belongs to another listener of the mesh.
    #[error(
        "`ports.{key}` must not be {port}, which belongs to another listener of the mesh (docs/reference/names.md): choose another port"
    )]
    ReservedPort {
        /// The key.
        key: &'static str,
        /// The port.
        port: u16,
    },
    /// The text is empty.
    #[error("`{0}` must not be empty")]
    Empty(&'static str),
}

impl LogLevel {
    /// The level, as Envoy's option `-l` has it.
    pub fn word(self) -> &'static str {
        match self {
            Self::Trace => "trace",
            Self::Debug => "debug",
            Self::Info => "info",
            Self::Warning => "warning",
            Self::Error => "error",
            Self::Critical => "critical",
            Self::Off => "off",
        }
    }
}

impl EnvoyPorts {
    /// The ports by their keys.
    pub(super) fn by_key(self) -> [(&'static str, u16); 2] {
        [("metrics", self.metrics), ("admin", self.admin)]
    }
}

impl Default for EnvoyPorts {
    fn default() -> Self {
        Self { metrics: ports::METRICS, admin: ports::ADMIN }
    }
}

impl Default for EnvoySettings {
    fn default() -> Self {
        let Written {
            binary,
            drain_time,
            parent_shutdown_time,
            drain_minimum,
            drain_maximum,
            ports,
            ..
        } = Written::default();
        Self {
            binary,
            log_level: None,
            concurrency: None,
            drain_time,
            parent_shutdown_time,
            drain_minimum,
            drain_maximum,
            ports,
            bootstrap_overlay: None,
        }
    }
}

/// The table as it is written.
#[derive(Debug, Deserialize)]
#[serde(default, deny_unknown_fields)]
struct Written {
    binary: PathBuf,
    log_level: Option<LogLevel>,
    concurrency: Option<NonZeroU32>,
    #[serde(deserialize_with = "seconds")]
    drain_time: Duration,
    #[serde(deserialize_with = "seconds")]
    parent_shutdown_time: Duration,
    #[serde(deserialize_with = "seconds")]
    drain_minimum: Duration,
    #[serde(deserialize_with = "seconds")]
    drain_maximum: Duration,
    ports: EnvoyPorts,
    bootstrap_overlay: Option<PathBuf>,
}

impl Default for Written {
    fn default() -> Self {
        Self {
            binary: "envoy".into(),
            log_level: None,
            concurrency: None,
            drain_time: Duration::from_secs(30),
            parent_shutdown_time: Duration::from_secs(60),
            drain_minimum: Duration::from_secs(5),
            drain_maximum: Duration::from_secs(60),
            ports: EnvoyPorts::default(),
            bootstrap_overlay: None,
        }
    }
}

/// The range of each time.
const SECONDS: RangeInclusive<u64> = 1..=24 * 60 * 60;

/// Reads a duration of whole seconds.
fn seconds<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Duration, D::Error> {
    let text = String::deserialize(deserializer)?;
    let parsed = text.parse::<Span>().ok();
    // A day is 24 hours, as in `ironmesh.toml`.
    let parsed = parsed.and_then(|span| span.to_duration(SpanRelativeTo::days_are_24_hours()).ok());
    let duration = parsed.and_then(|duration| Duration::try_from(duration).ok());
    let invalid = |expected: &str| de::Error::custom(format!("expected {expected}: `{text}`"));
    let duration = duration.ok_or_else(|| invalid("a duration, as in `30s`, `2m` or `1m 30s`"))?;
    if duration.subsec_nanos() > 0 || !SECONDS.contains(&duration.as_secs()) {
        return Err(invalid("whole seconds, from 1s to 24h"));
    }
    Ok(duration)
}

impl TryFrom<Written> for EnvoySettings {
    type Error = InvalidEnvoySettings;

    fn try_from(written: Written) -> Result<Self, InvalidEnvoySettings> {
        let Written { drain_time, parent_shutdown_time, drain_minimum, drain_maximum, .. } =
            written;
        // The old epoch would end while it still drains.
        if parent_shutdown_time <= drain_time {
            return Err(InvalidEnvoySettings::TooShort {
                longer: "parent_shutdown_time",
                longer_s: parent_shutdown_time.as_secs(),
                shorter: "drain_time",
                shorter_s: drain_time.as_secs(),
            });
        }
        if drain_minimum > drain_maximum {
            let (minimum, maximum) = (drain_minimum.as_secs(), drain_maximum.as_secs());
            return Err(InvalidEnvoySettings::Drain { minimum, maximum });
        }
        check_ports(written.ports)?;
        let overlay = written.bootstrap_overlay;
        if written.binary.as_os_str().is_empty() {
            return Err(InvalidEnvoySettings::Empty("binary"));
        }
        if overlay.as_ref().is_some_and(|path| path.as_os_str().is_empty()) {
            return Err(InvalidEnvoySettings::Empty("bootstrap_overlay"));
        }
        Ok(Self {
            binary: written.binary,
            log_level: written.log_level,
            concurrency: written.concurrency.map(NonZeroU32::get),
            drain_time,
            parent_shutdown_time,
            drain_minimum,
            drain_maximum,
            ports: written.ports,
            bootstrap_overlay: overlay,
        })
    }
}

/// Fails if a port is that of another listener of the mesh.
fn check_ports(ports: EnvoyPorts) -> Result<(), InvalidEnvoySettings> {
    if ports.metrics == ports.admin {
        return Err(InvalidEnvoySettings::SamePort(ports.admin));
    }
    for ((key, port), (_, own)) in ports.by_key().into_iter().zip(EnvoyPorts::default().by_key()) {
        if port == 0 || (port != own && reserved_ports::all().any(|reserved| reserved == port)) {
            return Err(InvalidEnvoySettings::ReservedPort { key, port });
        }
    }
    Ok(())
}
