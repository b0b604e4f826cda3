//! An OpenTelemetry collector that keeps the log records and spans it receives by OTLP over gRPC.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::fmt::Write as _;
use std::future::pending;
use std::net::SocketAddr;
use std::sync::Arc;

use bytes::Bytes;
use http::{HeaderMap, HeaderValue, Request, Response};
use http_body_util::{BodyExt as _, StreamBody};
use hyper::body::{Frame, Incoming};
use hyper::server::conn::http2;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo};
use ironmesh_xds_wire::pb::opentelemetry::proto::common::v1::{AnyValue, KeyValue, any_value};
use parking_lot::Mutex;
use prost::Message;
use rustls::ServerConfig;
use serde_json::Value;
use tokio::net::TcpListener;
use tokio::task::{AbortHandle, JoinSet};
use tokio_rustls::TlsAcceptor;

/// A collector that runs for as long as this value lives.
#[derive(Debug)]
pub struct Collector {
    received: Arc<Received>,
    task: AbortHandle,
}

/// The data received so far.
#[derive(Debug, Default)]
struct Received {
    is_silent: bool,
    records: Mutex<Vec<Record>>,
    spans: Mutex<Vec<Span>>,
    calls: Mutex<u64>,
}

/// A received log record.
#[derive(Debug, Clone)]
pub struct Record {
    /// The `service.name` of the sender.
    pub service: String,
    /// The body of the record.
    pub body: Value,
    /// The attributes of the record.
    pub attributes: BTreeMap<String, Value>,
}

/// A received span.
#[derive(Debug, Clone)]
pub struct Span {
    /// The `service.name` of the sender.
    pub service: String,
    /// The trace id in hexadecimal digits, as in `traceparent`.
    pub trace: String,
    /// The id of the span.
    pub id: String,
    /// The id of the parent span; empty without one.
    pub parent: String,
    /// The kind of the span: internal (1), server (2) or client (3).
    pub kind: i32,
    /// Its name.
    pub name: String,
    /// When it began and ended, in nanoseconds of the Unix epoch.
    pub times: (u64, u64),
    /// Its attributes.
    pub attributes: BTreeMap<String, Value>,
    /// The traces of its links.
    pub links: Vec<String>,
    /// The message of a failure; none if it has no status.
    pub error: Option<String>,
}

impl Collector {
    /// Starts a collector.
    pub async fn start(address: SocketAddr) -> Self {
        Self::start_with(address, Received::default()).await
    }

    /// Starts a collector that accepts calls and never answers.
    pub async fn start_silent(address: SocketAddr) -> Self {
        Self::start_with(address, Received { is_silent: true, ..Received::default() }).await
    }

    async fn start_with(address: SocketAddr, received: Received) -> Self {
        Self::listen(address, None, received).await
    }

    /// Starts a collector that speaks TLS.
    pub async fn start_tls(address: SocketAddr, tls: ServerConfig) -> Self {
        let tls = TlsAcceptor::from(Arc::new(tls));
        Self::listen(address, Some(tls), Received::default()).await
    }

    async fn listen(address: SocketAddr, tls: Option<TlsAcceptor>, received: Received) -> Self {
        let listener = TcpListener::bind(address).await.unwrap();
        let received = Arc::new(received);
        let task = tokio::spawn(accept(listener, tls, Arc::clone(&received))).abort_handle();
        Self { received, task }
    }

    /// The records received so far.
    pub fn records(&self) -> Vec<Record> {
        self.received.records.lock().clone()
    }

    /// The records for which `predicate` holds.
    pub fn records_where(&self, predicate: impl Fn(&Record) -> bool) -> Vec<Record> {
        self.received.records.lock().iter().filter(|one| predicate(one)).cloned().collect()
    }

    /// The spans received so far.
    pub fn spans(&self) -> Vec<Span> {
        self.received.spans.lock().clone()
    }

    /// The number of calls.
    pub fn calls(&self) -> u64 {
        *self.received.calls.lock()
    }
}

impl Drop for Collector {
    fn drop(&mut self) {
        self.task.abort();
    }
}

async fn accept(listener: TcpListener, tls: Option<TlsAcceptor>, received: Arc<Received>) {
    let mut connections = JoinSet::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else { continue };
        let (received, tls) = (Arc::clone(&received), tls.clone());
        connections.spawn(async move {
            let service = service_fn(|request| answer(Arc::clone(&received), request));
            let server = http2::Builder::new(TokioExecutor::new());
            // The client decides how a connection ends.
            let _ = match tls {
                None => server.serve_connection(TokioIo::new(stream), service).await,
                Some(tls) => {
                    let Ok(stream) = tls.accept(stream).await else { return };
                    server.serve_connection(TokioIo::new(stream), service).await
                }
            };
        });
    }
}

type Body = StreamBody<tokio_stream::Iter<std::vec::IntoIter<Result<Frame<Bytes>, Infallible>>>>;

async fn answer(
    received: Arc<Received>,
    request: Request<Incoming>,
) -> Result<Response<Body>, hyper::Error> {
    let path = request.uri().path().to_owned();
    let body = request.into_body().collect().await?.to_bytes();
    *received.calls.lock() += 1;
    if received.is_silent {
        pending::<()>().await;
    }
    // A gRPC message follows one byte of flags and four bytes of length.
    let message = body.slice(5..);
    match &*path {
        "/opentelemetry.proto.collector.logs.v1.LogsService/Export" => received.store_logs(message),
        "/opentelemetry.proto.collector.trace.v1.TraceService/Export" => {
            received.store_spans(message);
        }
        other => panic!("a collector is not called at {other}"),
    }
    let trailers = HeaderMap::from_iter([(
        http::HeaderName::from_static("grpc-status"),
        HeaderValue::from_static("0"),
    )]);
    let frames = vec![Ok(Frame::data(Bytes::from_static(&[0; 5]))), Ok(Frame::trailers(trailers))];
    let response = Response::builder().header("content-type", "application/grpc");
    Ok(response.body(StreamBody::new(tokio_stream::iter(frames))).unwrap())
}

impl Received {
    fn store_logs(&self, message: Bytes) {
        let request = otlp::Logs::decode(message).unwrap();
        for of_resource in request.resources {
            let service = service(of_resource.resource);
            for record in of_resource.scopes.into_iter().flat_map(|scope| scope.records) {
                self.records.lock().push(Record {
                    service: service.clone(),
                    body: record.body.map_or(Value::Null, json),
                    attributes: map(record.attributes),
                });
            }
        }
    }

    fn store_spans(&self, message: Bytes) {
        let request = otlp::Traces::decode(message).unwrap();
        for of_resource in request.resources {
            let service = service(of_resource.resource);
            for span in of_resource.scopes.into_iter().flat_map(|scope| scope.spans) {
                self.spans.lock().push(Span {
                    service: service.clone(),
                    trace: hexadecimal(&span.trace_id),
                    id: hexadecimal(&span.id),
                    parent: hexadecimal(&span.parent),
                    kind: span.kind,
                    name: span.name,
                    times: (span.start, span.end),
                    attributes: map(span.attributes),
                    links: span.links.iter().map(|link| hexadecimal(&link.trace_id)).collect(),
                    error: span.status.filter(|status| status.code == 2).map(|one| one.message),
                });
            }
        }
    }
}

fn service(resource: Option<otlp::Resource>) -> String {
    let attributes = map(resource.unwrap_or_default().attributes);
    attributes.get("service.name").and_then(Value::as_str).unwrap_or_default().to_owned()
}

fn map(attributes: Vec<KeyValue>) -> BTreeMap<String, Value> {
    let entry = |one: KeyValue| (one.key, one.value.map_or(Value::Null, json));
    attributes.into_iter().map(entry).collect()
}

fn json(value: AnyValue) -> Value {
    match value.value {
        Some(any_value::Value::StringValue(text)) => text.into(),
        Some(any_value::Value::IntValue(number)) => number.into(),
        Some(any_value::Value::ArrayValue(array)) => array.values.into_iter().map(json).collect(),
        Some(any_value::Value::BoolValue(value)) => value.into(),
        Some(any_value::Value::DoubleValue(number)) => number.into(),
        Some(any_value::Value::KvlistValue(list)) => {
            Value::Object(map(list.values).into_iter().collect())
        }
        other => panic!("unsupported attribute value: {other:?}"),
    }
}

fn hexadecimal(bytes: &[u8]) -> String {
    bytes.iter().fold(String::new(), |mut digits, byte| {
        let _ = write!(digits, "{byte:02x}");
        digits
    })
}

/// The messages of OTLP 1.0, reduced to the fields that tests read.
mod otlp {
    use ironmesh_xds_wire::pb::opentelemetry::proto::common::v1::{AnyValue, KeyValue};

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Logs {
        #[prost(message, repeated, tag = "1")]
        pub(super) resources: Vec<ResourceLogs>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ResourceLogs {
        #[prost(message, optional, tag = "1")]
        pub(super) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(super) scopes: Vec<ScopeLogs>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Resource {
        #[prost(message, repeated, tag = "1")]
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ScopeLogs {
        #[prost(message, repeated, tag = "2")]
        pub(super) records: Vec<LogRecord>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct LogRecord {
        #[prost(message, optional, tag = "5")]
        pub(super) body: Option<AnyValue>,
        #[prost(message, repeated, tag = "6")]
        pub(super) attributes: Vec<KeyValue>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Traces {
        #[prost(message, repeated, tag = "1")]
        pub(super) resources: Vec<ResourceSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ResourceSpans {
        #[prost(message, optional, tag = "1")]
        pub(super) resource: Option<Resource>,
        #[prost(message, repeated, tag = "2")]
        pub(super) scopes: Vec<ScopeSpans>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct ScopeSpans {
        #[prost(message, repeated, tag = "2")]
        pub(super) spans: Vec<Span>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Span {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) trace_id: Vec<u8>,
        #[prost(bytes = "vec", tag = "2")]
        pub(super) id: Vec<u8>,
        #[prost(bytes = "vec", tag = "4")]
        pub(super) parent: Vec<u8>,
        #[prost(string, tag = "5")]
        pub(super) name: String,
        #[prost(int32, tag = "6")]
        pub(super) kind: i32,
        #[prost(fixed64, tag = "7")]
        pub(super) start: u64,
        #[prost(fixed64, tag = "8")]
        pub(super) end: u64,
        #[prost(message, repeated, tag = "9")]
        pub(super) attributes: Vec<KeyValue>,
        #[prost(message, repeated, tag = "13")]
        pub(super) links: Vec<Link>,
        #[prost(message, optional, tag = "15")]
        pub(super) status: Option<Status>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Link {
        #[prost(bytes = "vec", tag = "1")]
        pub(super) trace_id: Vec<u8>,
    }

    #[derive(Clone, PartialEq, prost::Message)]
    pub(super) struct Status {
        #[prost(string, tag = "2")]
        pub(super) message: String,
        #[prost(int32, tag = "3")]
        pub(super) code: i32,
    }
}
