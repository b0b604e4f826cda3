//! The messages of OTLP 1 that an exporter of traces sends and receives, with the fields that it uses.

use std::time::{SystemTime, UNIX_EPOCH};

use crate::{AttributeValue, FinishedSpan, SpanContext, SpanKind};

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportRequest {
    #[prost(message, repeated, tag = "1")]
    pub(super) resource_spans: Vec<ResourceSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ResourceSpans {
    #[prost(message, optional, tag = "1")]
    resource: Option<Resource>,
    #[prost(message, repeated, tag = "2")]
    pub(super) scope_spans: Vec<ScopeSpans>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Resource {
    #[prost(message, repeated, tag = "1")]
    attributes: Vec<KeyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ScopeSpans {
    #[prost(message, optional, tag = "1")]
    scope: Option<Scope>,
    #[prost(message, repeated, tag = "2")]
    pub(super) spans: Vec<Span>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Scope {
    #[prost(string, tag = "1")]
    name: String,
    #[prost(string, tag = "2")]
    version: String,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct Span {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    id: Vec<u8>,
    #[prost(bytes = "vec", tag = "4")]
    parent_id: Vec<u8>,
    #[prost(string, tag = "5")]
    pub(super) name: String,
    #[prost(int32, tag = "6")]
    kind: i32,
    #[prost(fixed64, tag = "7")]
    start_time_unix_nano: u64,
    #[prost(fixed64, tag = "8")]
    end_time_unix_nano: u64,
    #[prost(message, repeated, tag = "9")]
    attributes: Vec<KeyValue>,
    #[prost(message, repeated, tag = "13")]
    links: Vec<Link>,
    #[prost(message, optional, tag = "15")]
    status: Option<SpanStatus>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Link {
    #[prost(bytes = "vec", tag = "1")]
    trace_id: Vec<u8>,
    #[prost(bytes = "vec", tag = "2")]
    span_id: Vec<u8>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct SpanStatus {
    #[prost(string, tag = "2")]
    message: String,
    #[prost(int32, tag = "3")]
    code: i32,
}

/// The code of [`SpanStatus`] for a failure.
const ERROR: i32 = 2;

#[derive(Clone, PartialEq, prost::Message)]
struct KeyValue {
    #[prost(string, tag = "1")]
    key: String,
    #[prost(message, optional, tag = "2")]
    value: Option<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct AnyValue {
    #[prost(oneof = "AnyValueKind", tags = "1, 3, 5")]
    value: Option<AnyValueKind>,
}

#[derive(Clone, PartialEq, prost::Oneof)]
enum AnyValueKind {
    #[prost(string, tag = "1")]
    Text(String),
    #[prost(int64, tag = "3")]
    Number(i64),
    #[prost(message, tag = "5")]
    Array(ArrayValue),
}

#[derive(Clone, PartialEq, prost::Message)]
struct ArrayValue {
    #[prost(message, repeated, tag = "1")]
    values: Vec<AnyValue>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct ExportResponse {
    #[prost(message, optional, tag = "1")]
    pub(super) partial_success: Option<PartialSuccess>,
}

#[derive(Clone, PartialEq, prost::Message)]
pub(super) struct PartialSuccess {
    #[prost(int64, tag = "1")]
    pub(super) rejected_spans: i64,
    #[prost(string, tag = "2")]
    pub(super) error_message: String,
}

impl ExportResponse {
    /// How many spans the collector has rejected, and why.
    pub(super) fn rejected(&self) -> (u64, &str) {
        let partial = self.partial_success.as_ref();
        partial.map_or((0, ""), |partial| {
            (u64::try_from(partial.rejected_spans).unwrap_or(0), &partial.error_message)
        })
    }
}

/// The request that exports a batch of a process with these attributes.
pub(super) fn export_request(
    resource: &[(&'static str, String)],
    batch: Vec<FinishedSpan>,
) -> ExportRequest {
    let attributes = resource.iter().map(|(key, text)| attribute(key, text.as_str().into()));
    let scope =
        Scope { name: "ironmesh".to_owned(), version: env!("CARGO_PKG_VERSION").to_owned() };
    let spans = batch.into_iter().map(span).collect();
    ExportRequest {
        resource_spans: vec![ResourceSpans {
            resource: Some(Resource { attributes: attributes.collect() }),
            scope_spans: vec![ScopeSpans { scope: Some(scope), spans }],
        }],
    }
}

fn span(span: FinishedSpan) -> Span {
    let SpanContext { trace_id, span_id } = span.context;
    let kind = match span.kind {
        SpanKind::Internal => 1,
        SpanKind::Client => 3,
    };
    let link = |link: SpanContext| Link {
        trace_id: link.trace_id.to_be_bytes().to_vec(),
        span_id: link.span_id.to_be_bytes().to_vec(),
    };
    Span {
        trace_id: trace_id.to_be_bytes().to_vec(),
        id: span_id.to_be_bytes().to_vec(),
        parent_id: span.parent.map(|id| id.to_be_bytes().to_vec()).unwrap_or_default(),
        name: span.name.to_owned(),
        kind,
        start_time_unix_nano: nanoseconds(span.start),
        end_time_unix_nano: nanoseconds(span.end),
        attributes: span.attributes.into_iter().map(|(key, value)| attribute(key, value)).collect(),
        links: span.links.into_iter().map(link).collect(),
        status: span.error.map(|message| SpanStatus { message, code: ERROR }),
    }
}

fn attribute(key: &str, value: AttributeValue) -> KeyValue {
    let text = |text: String| AnyValue { value: Some(AnyValueKind::Text(text)) };
    let value = match value {
        AttributeValue::Text(one) => text(one),
        AttributeValue::Number(number) => {
            let number = i64::try_from(number).unwrap_or(i64::MAX);
            AnyValue { value: Some(AnyValueKind::Number(number)) }
        }
        AttributeValue::Texts(all) => {
            let values = all.into_iter().map(text).collect();
            AnyValue { value: Some(AnyValueKind::Array(ArrayValue { values })) }
        }
    };
    KeyValue { key: key.to_owned(), value: Some(value) }
}

/// Nanoseconds of the Unix epoch; 0 before it.
fn nanoseconds(time: SystemTime) -> u64 {
    let since = time.duration_since(UNIX_EPOCH).unwrap_or_default();
    u64::try_from(since.as_nanos()).unwrap_or(u64::MAX)
}
