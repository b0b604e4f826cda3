//! The exporter: it takes spans from the queue, and sends them to the collector in batches.
//!
//! A collector that does not answer costs nothing but its spans: one line of the log, and a count. Nothing waits for it.

mod connection;
mod messages;
#[cfg(test)]
mod tests;

use std::time::Duration;

use http::uri::PathAndQuery;
use tokio::time::{Instant, sleep, timeout, timeout_at};
use tokio_util::sync::CancellationToken;
use tonic::client::Grpc;
use tonic::transport::Channel;
use tonic::{Code, Request, Status};
use tonic_prost::ProstCodec;

use crate::queue::QueuedSpans;
use crate::{ExporterError, FinishedSpan, SpanQueue};
use messages::{ExportRequest, ExportResponse, export_request};

/// The most spans of one call.
const BATCH: usize = 512;

/// How long a batch waits for further spans.
const LINGER: Duration = Duration::from_secs(1);

/// The time that a collector has for an answer.
const CALL_DEADLINE: Duration = Duration::from_secs(10);

/// The pause before a failed call is repeated: the first, and the longest.
const PAUSES: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// The time after which a batch is given up.
const GIVE_UP: Duration = Duration::from_secs(60);

/// The time that a shutdown waits for the last spans and for the collector.
const AT_SHUTDOWN: Duration = Duration::from_secs(3);

/// The method of OTLP.
const EXPORT: &str = "/opentelemetry.proto.collector.trace.v1.TraceService/Export";

/// The exporter of the spans in a queue.
#[derive(Debug)]
pub struct TraceExporter {
    queued: QueuedSpans,
    collector: Grpc<Channel>,
    /// Without credentials: the settings accept none in it.
    endpoint: String,
    /// What describes this process.
    resource: Vec<(&'static str, String)>,
    /// How many spans were lost when the current outage of the collector began.
    lost_before: Option<u64>,
    /// Whether the collector has rejected a part of a batch before.
    has_rejected: bool,
}

/// Why the collector has not accepted a batch.
struct Failure {
    reason: String,
    may_be_repeated: bool,
}

impl From<Status> for Failure {
    fn from(status: Status) -> Self {
        // The codes for which OTLP allows a repetition.
        let may_be_repeated = matches!(
            status.code(),
            Code::Cancelled
                | Code::DeadlineExceeded
                | Code::Aborted
                | Code::OutOfRange
                | Code::Unavailable
                | Code::DataLoss
                | Code::ResourceExhausted
                // That of a connection that breaks, in tonic.
                | Code::Unknown
        );
        let cause = std::error::Error::source(&status).map(deepest).unwrap_or_default();
        let text = format!("{}: {}", status.code(), status.message());
        let reason = if cause.is_empty() { text } else { format!("{text}: {cause}") };
        Self { reason, may_be_repeated }
    }
}

/// The first cause of an error.
fn deepest(error: &(dyn std::error::Error + 'static)) -> String {
    let mut cause = error;
    while let Some(next) = cause.source() {
        cause = next;
    }
    cause.to_string()
}

impl TraceExporter {
    /// An exporter to the collector at `endpoint`, and its queue. `resource` has the attributes of this process. The
    /// connection is opened with the first batch.
    pub fn open(
        endpoint: &str,
        resource: Vec<(&'static str, String)>,
    ) -> Result<(SpanQueue, Self), ExporterError> {
        let collector = Grpc::new(connection::channel(endpoint)?);
        let (queue, queued) = SpanQueue::new();
        let endpoint = endpoint.to_owned();
        let exporter =
            Self { queued, collector, endpoint, resource, lost_before: None, has_rejected: false };
        Ok((queue, exporter))
    }

    /// Exports until `shutdown`, and then the last spans within a few seconds.
    pub async fn run(mut self, shutdown: CancellationToken) {
        let end = async {
            shutdown.cancelled().await;
            sleep(AT_SHUTDOWN).await;
        };
        tokio::select! {
            () = self.export(&shutdown) => {}
            () = end => {}
        }
    }

    async fn export(&mut self, shutdown: &CancellationToken) {
        while !shutdown.is_cancelled() {
            let batch = self.batch(shutdown).await;
            if !batch.is_empty() {
                self.deliver(batch, shutdown).await;
            }
        }
        // The owner of open spans ends them, too.
        self.queued.complete.cancelled().await;
        loop {
            let mut batch = Vec::new();
            while batch.len() < BATCH
                && let Some(span) = self.queued.take()
            {
                batch.push(span);
            }
            if batch.is_empty() {
                return;
            }
            self.deliver(batch, shutdown).await;
        }
    }

    /// The next batch; empty at the shutdown.
    async fn batch(&mut self, shutdown: &CancellationToken) -> Vec<FinishedSpan> {
        let (spans, mut batch) = (&mut self.queued.spans, Vec::new());
        tokio::select! {
            received = spans.recv_many(&mut batch, BATCH) => if received == 0 {
                // No owner of the queue is left.
                shutdown.cancelled().await;
            },
            () = shutdown.cancelled() => {}
        }
        let deadline = Instant::now() + LINGER;
        while (1..BATCH).contains(&batch.len()) {
            let rest = BATCH - batch.len();
            tokio::select! {
                received = timeout_at(deadline, spans.recv_many(&mut batch, rest)) => {
                    if !received.is_ok_and(|received| received > 0) {
                        break;
                    }
                }
                () = shutdown.cancelled() => break,
            }
        }
        batch
    }

    /// Sends a batch, again if that may help. At the shutdown only once.
    async fn deliver(&mut self, batch: Vec<FinishedSpan>, shutdown: &CancellationToken) {
        let spans = batch.len() as u64;
        let request = export_request(&self.resource, batch);
        let (mut pause, longest) = PAUSES;
        let end = Instant::now() + GIVE_UP;
        loop {
            match self.call(request.clone()).await {
                Ok(answer) => return self.accepted(spans, &answer),
                Err(failure) => {
                    self.failed(&failure.reason);
                    let is_last = Instant::now() + pause > end || shutdown.is_cancelled();
                    if !failure.may_be_repeated || is_last {
                        return self.queued.counts.count_lost(spans);
                    }
                }
            }
            tokio::select! {
                () = sleep(pause) => {}
                () = shutdown.cancelled() => {}
            }
            pause = longest.min(pause * 2);
        }
    }

    async fn call(&mut self, request: ExportRequest) -> Result<ExportResponse, Failure> {
        let collector = &mut self.collector;
        let call = async {
            let ready = collector.ready().await;
            ready.map_err(|error| Failure { reason: deepest(&error), may_be_repeated: true })?;
            let codec = ProstCodec::<ExportRequest, ExportResponse>::default();
            let path = PathAndQuery::from_static(EXPORT);
            Ok(collector.unary(Request::new(request), path, codec).await?.into_inner())
        };
        timeout(CALL_DEADLINE, call).await.unwrap_or_else(|_| {
            let reason = format!("no answer within {} s", CALL_DEADLINE.as_secs());
            Err(Failure { reason, may_be_repeated: true })
        })
    }

    /// Counts a batch that the collector has accepted, perhaps without some spans.
    fn accepted(&mut self, spans: u64, answer: &ExportResponse) {
        let (rejected, reason) = answer.rejected();
        let rejected = rejected.min(spans);
        self.queued.counts.count_exported(spans - rejected);
        self.queued.counts.count_lost(rejected);
        if let Some(before) = self.lost_before.take() {
            let lost = self.queued.counts.lost() - before;
            tracing::info!(endpoint = self.endpoint, lost, "traces are exported again");
        }
        if rejected > 0 && !std::mem::replace(&mut self.has_rejected, true) {
            let action = "look at the collector; further rejected spans are only counted";
            tracing::warn!(
                endpoint = self.endpoint,
                rejected,
                reason,
                action,
                "the collector rejects spans"
            );
        }
    }

    /// Logs the first failure of an outage.
    fn failed(&mut self, reason: &str) {
        if self.lost_before.is_none() {
            self.lost_before = Some(self.queued.counts.lost());
            tracing::warn!(
                endpoint = self.endpoint,
                reason,
                action = "look at the collector; the mesh is not affected",
                "cannot export traces"
            );
        }
    }
}
