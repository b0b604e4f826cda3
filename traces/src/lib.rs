//! Spans, and their export by OTLP over gRPC.
//!
//! A span here is finished: its owner keeps what it needs until the end, and then adds it to the [`SpanQueue`], which
//! never blocks. The [`TraceExporter`] sends the spans to a collector. It owns no meaning of a span, and no span is made by
//! the log: so the levels of the log do not change the traces, and the exporter never traces itself.
//!
//! If the feature `otlp` is off, `absent.rs` replaces `exporter.rs`, and [`TraceExporter::open`] fails with
//! [`ExporterError::NotBuiltIn`].

#[cfg_attr(not(feature = "otlp"), path = "absent.rs")]
mod exporter;
mod queue;
mod span;

pub use exporter::TraceExporter;
pub use queue::{QueuedSpans, SpanCounts, SpanQueue};
pub use span::{AttributeValue, FinishedSpan, SpanContext, SpanKind};

/// The reason why traces cannot be exported at all.
#[derive(Debug, thiserror::Error)]
pub enum ExporterError {
    /// The program has no exporter.
    #[error(
        "this program was built without the export of traces: remove the setting, use a package of Ironmesh, or build it with `--features otlp`"
    )]
    NotBuiltIn,
    /// The address of the collector is not `http://host:port` or `https://host:port`.
    #[error("`{0}` is no address of a collector: write `https://host:port`")]
    InvalidEndpoint(String),
    /// TLS needs the certificates of the system, and these cannot be used.
    #[error("the system's certificate authorities cannot be used for TLS to the collector: {0}")]
    Tls(String),
}
