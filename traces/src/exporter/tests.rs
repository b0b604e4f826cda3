use std::time::{Duration, SystemTime};

use prost::Message as _;
use tokio::net::TcpListener;
use tokio_util::task::AbortOnDropHandle;

use super::messages::PartialSuccess;
use super::*;
use crate::{AttributeValue, SpanContext, SpanKind};

fn span(name: &'static str) -> FinishedSpan {
    FinishedSpan {
        context: SpanContext { trace_id: 0x0102, span_id: 3 },
        parent: None,
        links: Vec::new(),
        name,
        kind: SpanKind::Internal,
        start: SystemTime::UNIX_EPOCH,
        end: SystemTime::UNIX_EPOCH + Duration::from_nanos(1),
        attributes: Vec::new(),
        error: None,
    }
}

/// The bytes are those of `opentelemetry/proto/collector/trace/v1/trace_service.proto`.
#[test]
fn request_has_the_fields_of_otlp() {
    let failed = FinishedSpan {
        parent: Some(4),
        links: vec![SpanContext { trace_id: 5, span_id: 6 }],
        kind: SpanKind::Client,
        attributes: vec![("n", 7_u64.into()), ("t", AttributeValue::Texts(vec!["x".to_owned()]))],
        error: Some("e".to_owned()),
        ..span("s")
    };
    let request = export_request(&[("r", "v".to_owned())], vec![failed]);
    let bytes = request.encode_to_vec();
    let id = |last: u8, length: usize| {
        let mut id = vec![0; length];
        id[length - 1] = last;
        id
    };
    let field = |tag: u8, content: &[u8]| {
        // The length has seven bits in each byte.
        let (low, high) = (content.len() % 128, content.len() / 128);
        let length = if high == 0 { vec![low] } else { vec![low | 128, high] };
        let length = length.into_iter().map(|part| u8::try_from(part).unwrap());
        [vec![tag << 3 | 2], length.collect(), content.to_vec()].concat()
    };
    let text = |text: &str| field(1, text.as_bytes());
    let attribute = |key: &str, value: &[u8]| [text(key), field(2, value)].concat();
    let mut trace_id = id(2, 16);
    trace_id[14] = 1;
    let span = [
        field(1, &trace_id),
        field(2, &id(3, 8)),
        field(4, &id(4, 8)),
        field(5, b"s"),
        // The kind `CLIENT`, the start 0, which is not written, and the end.
        vec![6 << 3, 3],
        [vec![8 << 3 | 1, 1], vec![0; 7]].concat(),
        field(9, &attribute("n", &[3 << 3, 7])),
        field(9, &attribute("t", &field(5, &field(1, &text("x"))))),
        field(13, &[field(1, &id(5, 16)), field(2, &id(6, 8))].concat()),
        field(15, &[field(2, b"e"), vec![3 << 3, 2]].concat()),
    ];
    let scope = [text("ironmesh"), field(2, env!("CARGO_PKG_VERSION").as_bytes())].concat();
    let of_scope = [field(1, &scope), field(2, &span.concat())].concat();
    let resource = field(1, &field(1, &attribute("r", &text("v"))));
    let expected = field(1, &[resource, field(2, &of_scope)].concat());
    assert_eq!(bytes, expected);
}

#[test]
fn rejected_spans_of_an_answer_are_counted() {
    let answer = |rejected_spans| {
        let error_message = "full".to_owned();
        ExportResponse { partial_success: Some(PartialSuccess { rejected_spans, error_message }) }
    };
    assert_eq!(answer(3).rejected(), (3, "full"));
    assert_eq!(answer(-1).rejected(), (0, "full"));
    assert_eq!(ExportResponse::default().rejected(), (0, ""));
}

#[tokio::test]
async fn invalid_addresses_are_errors() {
    let addresses = ["", "collector:4317", "http://collector", "ftp://collector:21", "http://:1 /"];
    for address in addresses {
        let error = TraceExporter::open(address, Vec::new()).unwrap_err();
        assert!(matches!(error, ExporterError::InvalidEndpoint(_)), "{address}: {error}");
    }
    for address in ["http://127.0.0.1:4317", "https://[::1]:4317", "https://collector:4317"] {
        TraceExporter::open(address, Vec::new()).unwrap();
    }
}

/// An exporter to a port on which nothing listens.
async fn without_collector() -> (SpanQueue, TraceExporter) {
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let endpoint = format!("http://{}", listener.local_addr().unwrap());
    drop(listener);
    TraceExporter::open(&endpoint, Vec::new()).unwrap()
}

/// Virtual time passes while nothing but the connection is waited for.
#[tokio::test(start_paused = true)]
async fn spans_without_a_collector_are_lost_after_a_minute() {
    let (queue, exporter) = without_collector().await;
    let _running = AbortOnDropHandle::new(tokio::spawn(exporter.run(CancellationToken::new())));
    let begin = Instant::now();
    queue.add(span("a"));
    while queue.counts().lost() == 0 {
        sleep(Duration::from_secs(1)).await;
    }
    assert_eq!((queue.counts().exported(), queue.counts().lost()), (0, 1));
    let elapsed = begin.elapsed();
    assert!((30..=90).contains(&elapsed.as_secs()), "{elapsed:?}");
}

#[tokio::test]
async fn rest_is_tried_once_at_the_shutdown() {
    let (queue, exporter) = without_collector().await;
    let shutdown = CancellationToken::new();
    for _ in 0..3 {
        queue.add(span("b"));
    }
    queue.complete();
    shutdown.cancel();
    exporter.run(shutdown).await;
    assert_eq!((queue.counts().exported(), queue.counts().lost()), (0, 3));
}

/// Virtual time passes.
#[tokio::test(start_paused = true)]
async fn shutdown_does_not_wait_for_spans_that_never_come() {
    let (_queue, exporter) = without_collector().await;
    let shutdown = CancellationToken::new();
    shutdown.cancel();
    let begin = Instant::now();
    exporter.run(shutdown).await;
    assert_eq!(begin.elapsed().as_secs(), 3);
}

#[test]
fn full_queue_loses_the_newest_spans_without_waiting() {
    let (queue, mut queued) = SpanQueue::new();
    for _ in 0..8_192 {
        queue.add(span("kept"));
    }
    assert_eq!(queue.counts().lost(), 0);
    queue.add(span("lost"));
    assert_eq!(queue.counts().lost(), 1);
    let mut kept = 0;
    while let Some(span) = queued.take() {
        assert_eq!(span.name, "kept");
        kept += 1;
    }
    assert_eq!(kept, 8_192);
}
