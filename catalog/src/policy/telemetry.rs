//! Telemetry: what sidecars tell of the calls that pass through them, and whom.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Level;
use crate::finding::Spot;
use crate::name::Name;

/// OSM's `Telemetry`, and tracing: what the sidecars of some services tell, of the calls that come to these
/// and of those that they make.
///
/// Each of its settings is decided by itself ([`Telemetries`](crate::telemetries::Telemetries)).
#[derive(Debug, Clone, Eq)]
pub struct Telemetry {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// Whose sidecars it is about.
    pub level: Level,
    /// What is told of each call, and where to.
    pub access_log: Option<AccessLog>,
    /// Which calls are traced, and where to.
    pub tracing: Option<Tracing>,
    /// Where it is written.
    pub spot: Spot,
}

impl Telemetry {
    /// Who is told by it.
    pub fn collectors(&self) -> impl Iterator<Item = &Collector> {
        let of_log = self.access_log.as_ref().and_then(|log| log.sink.collector());
        of_log.into_iter().chain(self.tracing.as_ref().map(|tracing| &tracing.collector))
    }
}

impl PartialEq for Telemetry {
    fn eq(&self, other: &Self) -> bool {
        // Taken apart, so that no field is forgotten.
        let Self { namespace, name, level, access_log, tracing, spot: _ } = self;
        *namespace == other.namespace
            && *name == other.name
            && *level == other.level
            && *access_log == other.access_log
            && *tracing == other.tracing
    }
}

/// An access log: an entry for each request, and for each TCP connection at its end.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct AccessLog {
    /// What an entry says.
    pub format: LogFormat,
    /// Where entries go.
    pub sink: LogSink,
    /// Of which calls there is an entry; of all where it is left out.
    pub filter: Option<LogFilter>,
}

impl fmt::Display for AccessLog {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { format, sink, filter } = self;
        let form = match format {
            LogFormat::Text(_) => "text",
            LogFormat::Json(_) => "JSON",
        };
        write!(f, "access log as {form} to {sink}")?;
        match filter {
            Some(filter) => write!(f, ", of what {filter}"),
            None => Ok(()),
        }
    }
}

/// What an entry of an access log says. Texts have command operators of Envoy in them, such as
/// `%RESPONSE_CODE%`, which it is known to take.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text, which ends where it says so.
    Text(Arc<str>),
    /// An object of JSON.
    Json(BTreeMap<Arc<str>, LogValue>),
}

/// A value of [`LogFormat::Json`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogValue {
    /// A text. One that is a command operator alone becomes what that stands for: a number, if it is one.
    Text(Arc<str>),
    /// An object in the object.
    Object(BTreeMap<Arc<str>, Self>),
}

/// What JSON the default format has, by name (those of OSM).
const DEFAULT_FIELDS: [(&str, &str); 18] = [
    ("authority", "%REQ(:AUTHORITY)%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("duration", "%DURATION%"),
    ("method", "%REQ(:METHOD)%"),
    // Queries may have secrets in them.
    ("path", "%PATH(NQ:ORIG_OR_PATH)%"),
    ("protocol", "%PROTOCOL%"),
    ("request_id", "%REQ(X-REQUEST-ID)%"),
    ("requested_server_name", "%REQUESTED_SERVER_NAME%"),
    ("response_code", "%RESPONSE_CODE%"),
    ("response_code_details", "%RESPONSE_CODE_DETAILS%"),
    ("response_flags", "%RESPONSE_FLAGS%"),
    ("start_time", "%START_TIME%"),
    ("time_to_first_byte", "%RESPONSE_DURATION%"),
    ("upstream_cluster", "%UPSTREAM_CLUSTER%"),
    ("upstream_host", "%UPSTREAM_HOST%"),
    ("user_agent", "%REQ(USER-AGENT)%"),
    ("x_forwarded_for", "%REQ(X-FORWARDED-FOR)%"),
];

impl Default for LogFormat {
    /// The fields that OSM's sidecars log.
    fn default() -> Self {
        let text = |text: &str| LogValue::Text(text.into());
        Self::Json(
            DEFAULT_FIELDS.iter().map(|(name, value)| ((*name).into(), text(value))).collect(),
        )
    }
}

/// Where entries of an access log go.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum LogSink {
    /// To the sidecar's standard output.
    #[default]
    Stdout,
    /// To the end of the file of this name, in the folder that the sidecar's own bootstrap allows for logs.
    /// A sidecar whose bootstrap allows none writes no such log.
    File(Arc<str>),
    /// To a collector, in batches. What it does not take in time is dropped.
    OpenTelemetry {
        /// The collector.
        collector: Collector,
        /// What the records say besides, in texts like those of a format.
        attributes: BTreeMap<Arc<str>, Arc<str>>,
    },
}

impl LogSink {
    /// The collector, if entries go to one.
    pub fn collector(&self) -> Option<&Collector> {
        match self {
            Self::OpenTelemetry { collector, .. } => Some(collector),
            Self::Stdout | Self::File(_) => None,
        }
    }
}

impl fmt::Display for LogSink {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Stdout => f.write_str("standard output"),
            Self::File(path) => write!(f, "file {path}"),
            Self::OpenTelemetry { collector, .. } => write!(f, "collector {collector}"),
        }
    }
}

/// Of which calls there is an entry: those that meet one of the conditions that are given. There is one at
/// least.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter {
    /// Requests that are answered with this status or a higher one; and TCP connections that could not be
    /// passed on.
    pub status_at_least: Option<u16>,
    /// Requests and connections that take longer than this, in milliseconds.
    pub slower_than_ms: Option<u32>,
}

impl fmt::Display for LogFilter {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let status = self.status_at_least.map(|status| format!("has status {status} or higher"));
        let slow = self.slower_than_ms.map(|ms| format!("takes longer than {ms} ms"));
        let conditions: Vec<_> = status.into_iter().chain(slow).collect();
        f.write_str(&conditions.join(" or "))
    }
}

/// Who takes what sidecars tell: an OpenTelemetry collector, by OTLP over gRPC in plaintext (HTTP/2 with
/// prior knowledge).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collector {
    /// An IP address, or a name that sidecars look up.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
}

impl Collector {
    /// The port that OTLP over gRPC has at IANA.
    pub const PORT: u16 = 4317;
}

impl fmt::Display for Collector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { host, port } = self;
        if host.contains(':') { write!(f, "[{host}]:{port}") } else { write!(f, "{host}:{port}") }
    }
}

/// Tracing: the spans of requests, with W3C's `traceparent` passed on.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Tracing {
    /// Who is told of the spans.
    pub collector: Collector,
    /// Which share of the traces is told.
    pub sampling: Sampling,
    /// What the service is called there; `<service>.<namespace>` where it is left out.
    pub service_name: Option<Arc<str>>,
}

impl fmt::Display for Tracing {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} of the traces to collector {}", self.sampling, self.collector)
    }
}

/// A share of traces, in millionths.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Sampling(pub u32);

impl Sampling {
    /// All traces.
    pub const ALL: Self = Self(1_000_000);
}

impl fmt::Display for Sampling {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} %", f64::from(self.0) / 10_000.0)
    }
}
