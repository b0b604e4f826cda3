//! The queue between the owners of spans and the exporter.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

use crate::FinishedSpan;

/// The most spans that wait for the exporter, of up to about 1 KiB each. Further ones are lost, and counted.
const MOST_WAITING: usize = 8_192;

/// How many spans had which end.
#[derive(Debug, Default)]
pub struct SpanCounts {
    exported: AtomicU64,
    lost: AtomicU64,
}

impl SpanCounts {
    /// The spans that the collector has accepted.
    pub fn exported(&self) -> u64 {
        self.exported.load(Ordering::Relaxed)
    }

    /// The spans that no collector got: it did not answer, rejected them, or they came faster than it answers.
    pub fn lost(&self) -> u64 {
        self.lost.load(Ordering::Relaxed)
    }

    #[cfg(feature = "otlp")]
    pub(crate) fn count_exported(&self, spans: u64) {
        self.exported.fetch_add(spans, Ordering::Relaxed);
    }

    pub(crate) fn count_lost(&self, spans: u64) {
        self.lost.fetch_add(spans, Ordering::Relaxed);
    }
}

/// The queue, for those who add spans to it. Copies share it.
#[derive(Debug, Clone)]
pub struct SpanQueue {
    spans: mpsc::Sender<FinishedSpan>,
    counts: Arc<SpanCounts>,
    complete: CancellationToken,
}

/// The end of the queue from which spans are taken.
#[derive(Debug)]
pub struct QueuedSpans {
    pub(crate) spans: mpsc::Receiver<FinishedSpan>,
    #[cfg(feature = "otlp")]
    pub(crate) counts: Arc<SpanCounts>,
    /// Cancelled once no more spans follow.
    #[cfg(feature = "otlp")]
    pub(crate) complete: CancellationToken,
}

impl QueuedSpans {
    /// Takes the oldest span; none if none waits.
    pub fn take(&mut self) -> Option<FinishedSpan> {
        self.spans.try_recv().ok()
    }
}

impl SpanQueue {
    /// An empty queue.
    pub fn new() -> (Self, QueuedSpans) {
        let (sender, spans) = mpsc::channel(MOST_WAITING);
        let (counts, complete) = (Arc::<SpanCounts>::default(), CancellationToken::new());
        let queued = QueuedSpans {
            spans,
            #[cfg(feature = "otlp")]
            counts: Arc::clone(&counts),
            #[cfg(feature = "otlp")]
            complete: complete.clone(),
        };
        (Self { spans: sender, counts, complete }, queued)
    }

    /// Adds a span, or counts it as lost if the queue is full. Never waits.
    pub fn add(&self, span: FinishedSpan) {
        if self.spans.try_send(span).is_err() {
            self.counts.count_lost(1);
        }
    }

    /// Ends the queue: no more spans follow, and a shutdown need not wait for them.
    pub fn complete(&self) {
        self.complete.cancel();
    }

    /// How many spans had which end.
    pub fn counts(&self) -> &SpanCounts {
        &self.counts
    }
}
