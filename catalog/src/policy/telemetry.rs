//! Telemetry: access logs and traces that sidecars report, and their destinations.

use std::collections::BTreeMap;
use std::fmt;
use std::sync::Arc;

use super::Level;
use crate::finding::Spot;
use crate::name::Name;

/// OSM's `Telemetry`, and tracing: what the sidecars of some services report about incoming and outgoing calls.
///
/// Each setting is chosen separately ([`Telemetries`](crate::telemetries::Telemetries)).
#[derive(Debug, Clone, Eq)]
pub struct Telemetry {
    /// Its namespace.
    pub namespace: Name,
    /// Its name, unique in the namespace.
    pub name: Name,
    /// The services to whose sidecars it applies.
    pub level: Level,
    /// The access log.
    pub access_log: Option<AccessLog>,
    /// The tracing.
    pub tracing: Option<Tracing>,
    /// Its location in policy.
    pub spot: Spot,
}

impl Telemetry {
    /// Its collectors.
    pub fn collectors(&self) -> impl Iterator<Item = &Collector> {
        let of_log = self.access_log.as_ref().and_then(|log| log.sink.collector());
        of_log.into_iter().chain(self.tracing.as_ref().map(|tracing| &tracing.collector))
    }
}

impl PartialEq for Telemetry {
    fn eq(&self, other: &Self) -> bool {
        // Destructured, so that the compiler reports a forgotten field.
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
    /// The format of an entry.
    pub format: LogFormat,
    /// The destination of entries.
    pub sink: LogSink,
    /// The filter of calls. Default: all calls.
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

/// The format of an access log entry. Texts contain command operators that Envoy accepts, such as
/// `%RESPONSE_CODE%`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogFormat {
    /// A line of text, with its own line end.
    Text(Arc<str>),
    /// An object of JSON.
    Json(BTreeMap<Arc<str>, LogValue>),
}

/// A value of [`LogFormat::Json`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum LogValue {
    /// A text. A single command operator becomes its value: a number, if it is one.
    Text(Arc<str>),
    /// An object in the object.
    Object(BTreeMap<Arc<str>, Self>),
}

/// The fields of the default JSON format, by name (those of OSM).
const DEFAULT_FIELDS: [(&str, &str); 18] = [
    ("authority", "%REQ(:AUTHORITY)%"),
    ("bytes_received", "%BYTES_RECEIVED%"),
    ("bytes_sent", "%BYTES_SENT%"),
    ("duration", "%DURATION%"),
    ("method", "%REQ(:METHOD)%"),
    // Queries may contain secrets.
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
    /// Appended to the file of this name, in the log folder that the sidecar's bootstrap allows. A sidecar
    /// without such a folder writes no log.
    File(Arc<str>),
    /// To a collector, in batches. Entries that it does not accept in time are dropped.
    OpenTelemetry {
        /// The collector.
        collector: Collector,
        /// Additional attributes of the records, as texts like those of a format.
        attributes: BTreeMap<Arc<str>, Arc<str>>,
    },
}

impl LogSink {
    /// The collector, if it is the destination.
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

/// A filter of calls: those that meet one of the given conditions. At least one is given.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct LogFilter {
    /// Requests with this response status or higher, and TCP connections that failed upstream.
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

/// A destination of telemetry: an OpenTelemetry collector, by OTLP over gRPC in plaintext (HTTP/2 with prior
/// knowledge).
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Collector {
    /// An IP address, or a name that sidecars look up.
    pub host: Arc<str>,
    /// Its port.
    pub port: u16,
}

impl Collector {
    /// The IANA port of OTLP over gRPC.
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
    /// The collector of spans.
    pub collector: Collector,
    /// The share of traces that is reported.
    pub sampling: Sampling,
    /// The service name in spans. Default: `<service>.<namespace>`.
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
