//! The traces of changes: one for each change, from the pass that finds it to the last ACK.
//!
//! The change log reports the changes, and to which proxies each goes; the xDS server reports the pushes and their answers.
//! A push carries all changes that its proxy has not ACKed: its span is in the trace of the newest of them, and links to
//! the others. Without a collector in the settings, none of this exists.
//!
//! It is for people. Nothing is decided by it, and it waits for nothing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, OnceLock};
use std::time::{Duration, SystemTime};

use anyhow::Context as _;
use ironmesh_config_settings::Settings;
use ironmesh_traces::{
    AttributeValue, ExporterError, FinishedSpan, SpanContext, SpanKind, SpanQueue, TraceExporter,
};
use ironmesh_xds_server::{ClientKey, ObservedPush, PushObserver};
use ironmesh_xds_wire::ResourceType;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::time::Instant;

use crate::stores::host_name;

/// The most pushes that have a span while they wait for their answer, of about 1 KiB each. Further ones have none.
const MOST_OPEN: usize = 10_000;

/// The spans of a trace beyond which a push has one only if it is slow or fails.
const MOST_USUAL: u64 = 1_000;

/// From when on a push is slow.
const SLOW: Duration = Duration::from_secs(1);

/// How long after the end of a change a push still belongs to it: what follows a NACK.
const AFTERMATH: Duration = Duration::from_secs(15);

/// The most resources that a span names.
const NAMED: usize = 5;

/// A point in time, by the wall clock and by one that never jumps.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Moment {
    wall: SystemTime,
    instant: Instant,
}

impl Moment {
    pub(crate) fn now() -> Self {
        Self { wall: Timestamp::now().into(), instant: Instant::now() }
    }

    /// The present, as far after this moment as has passed.
    fn present(self) -> SystemTime {
        self.wall + self.instant.elapsed()
    }
}

/// A change with a trace.
#[derive(Debug)]
pub(crate) struct TracedChange {
    context: SpanContext,
    /// When the pass began that found it.
    start: Moment,
    id: String,
    kind: &'static str,
    inputs: String,
    ended: OnceLock<Instant>,
    /// The pushes that carry it, and those of them that have a span.
    pushes: AtomicU64,
    spans: AtomicU64,
}

impl TracedChange {
    /// Whether it has ended.
    fn is_over(&self) -> bool {
        self.ended.get().is_some()
    }

    /// Whether pushes belong to it.
    fn has_pushes(&self) -> bool {
        self.ended.get().is_none_or(|ended| ended.elapsed() < AFTERMATH)
    }

    fn attributes(&self) -> Vec<(&'static str, AttributeValue)> {
        vec![
            ("ironmesh.change", self.id.as_str().into()),
            ("ironmesh.change.kind", self.kind.into()),
            ("ironmesh.change.inputs", self.inputs.as_str().into()),
        ]
    }
}

/// How a change ended.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ChangeEnd {
    /// All proxies have answered, so many of them by a NACK.
    Answered { nacked: usize },
    /// Some proxies have not answered in the time of a trace.
    Late,
    /// Some proxies have not answered, and there are too many newer changes.
    Superseded,
    /// The control plane stops.
    Shutdown,
}

/// A push without an answer.
#[derive(Debug)]
struct OpenPush {
    change: Arc<TracedChange>,
    context: SpanContext,
    links: Vec<SpanContext>,
    start: Moment,
    attributes: Vec<(&'static str, AttributeValue)>,
}

#[derive(Debug, Default)]
struct State {
    /// The changes that each proxy has not ACKed, the newest last.
    pending: HashMap<ClientKey, Vec<Arc<TracedChange>>>,
    /// The pushes without an answer, by stream and type.
    pushes: HashMap<(u64, ResourceType), OpenPush>,
}

/// What became of the spans of traces.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct TraceCounts {
    /// The collector has accepted them.
    pub(crate) exported: u64,
    /// The collector did not take them.
    pub(crate) lost: u64,
    /// Pushes that have no span, because a trace or this process has enough of them.
    pub(crate) omitted: u64,
}

/// The traces of this control plane.
#[derive(Debug)]
pub(crate) struct ChangeTraces {
    queue: SpanQueue,
    state: Mutex<State>,
    /// The pushes without a span.
    omitted: AtomicU64,
}

/// The traces and their exporter, if the settings name a collector.
pub(crate) fn open(
    settings: &Settings,
) -> anyhow::Result<Option<(Arc<ChangeTraces>, TraceExporter)>> {
    let Some(endpoint) = &settings.traces_endpoint else { return Ok(None) };
    let resource = vec![
        ("service.name", "ironmesh".to_owned()),
        ("service.version", env!("CARGO_PKG_VERSION").to_owned()),
        ("service.instance.id", host_name()),
        ("ironmesh.mesh", settings.mesh.to_string()),
    ];
    match TraceExporter::open(endpoint, resource) {
        Ok((queue, exporter)) => Ok(Some((Arc::new(ChangeTraces::new(queue)), exporter))),
        // The system may lose its certificates: the mesh does not depend on traces.
        Err(ExporterError::Tls(reason)) => {
            let action = "install the system's certificate authorities, and restart; the mesh is not affected";
            tracing::warn!(endpoint, reason, action, "cannot export traces");
            Ok(None)
        }
        Err(error) => Err(error).with_context(|| {
            format!("`traces.endpoint` in the settings cannot be used: {endpoint}")
        }),
    }
}

impl ChangeTraces {
    pub(crate) fn new(queue: SpanQueue) -> Self {
        Self { queue, state: Mutex::default(), omitted: AtomicU64::default() }
    }

    /// What became of all spans until now.
    pub(crate) fn counts(&self) -> TraceCounts {
        let counts = self.queue.counts();
        let omitted = self.omitted.load(Ordering::Relaxed);
        TraceCounts { exported: counts.exported(), lost: counts.lost(), omitted }
    }

    /// Begins the trace of a change that a pass has found, which began at `start`.
    pub(crate) fn begin(id: &str, kind: &'static str, inputs: &str, start: Moment) -> TracedChange {
        TracedChange {
            context: SpanContext::new_root(),
            start,
            id: id.to_owned(),
            kind,
            inputs: inputs.to_owned(),
            ended: OnceLock::new(),
            pushes: AtomicU64::default(),
            spans: AtomicU64::default(),
        }
    }

    /// Notes that a proxy is about to get these changes, which are of one pass and in the order of their importance.
    pub(crate) fn assign<'a>(
        &self,
        client: &ClientKey,
        changes: impl DoubleEndedIterator<Item = &'a Arc<TracedChange>>,
    ) {
        let mut state = self.state.lock();
        let pending = state.pending.entry(Arc::clone(client)).or_default();
        pending.retain(|change| !change.is_over());
        pending.extend(changes.rev().cloned());
    }

    /// Notes that a proxy has ACKed everything, or is disconnected.
    pub(crate) fn settle(&self, client: &str) {
        self.state.lock().pending.remove(client);
    }

    /// Ends the span of the pass that has found a change and published it to so many proxies.
    pub(crate) fn reconciled(&self, change: &TracedChange, proxies: usize) {
        self.queue.add(FinishedSpan {
            context: change.context.new_child(),
            parent: Some(change.context.span_id),
            links: Vec::new(),
            name: "reconcile",
            kind: SpanKind::Internal,
            start: change.start.wall,
            end: change.start.present(),
            attributes: vec![
                ("ironmesh.change", change.id.as_str().into()),
                ("ironmesh.proxies", proxies.into()),
            ],
            error: None,
        });
    }

    /// Ends the trace of a change that was published to so many proxies.
    pub(crate) fn end(&self, change: &TracedChange, proxies: usize, end: ChangeEnd) {
        if change.ended.set(Instant::now()).is_err() {
            return;
        }
        let nacked = match end {
            ChangeEnd::Answered { nacked } => nacked,
            ChangeEnd::Late | ChangeEnd::Superseded | ChangeEnd::Shutdown => 0,
        };
        let error = match end {
            ChangeEnd::Answered { nacked: 0 } => None,
            ChangeEnd::Answered { nacked } => Some(format!("proxies that NACKed it: {nacked}")),
            ChangeEnd::Late => Some("not ACKed by all proxies".to_owned()),
            ChangeEnd::Superseded => Some("superseded by newer changes".to_owned()),
            ChangeEnd::Shutdown => Some("the control plane stopped".to_owned()),
        };
        let mut attributes = change.attributes();
        attributes.extend([
            ("ironmesh.proxies", proxies.into()),
            ("ironmesh.nacked", nacked.into()),
            ("ironmesh.pushes", change.pushes.load(Ordering::Relaxed).into()),
        ]);
        self.queue.add(FinishedSpan {
            context: change.context,
            parent: None,
            links: Vec::new(),
            name: "change",
            kind: SpanKind::Internal,
            start: change.start.wall,
            end: change.start.present(),
            attributes,
            error,
        });
    }

    /// Ends all spans: no more follow.
    pub(crate) fn complete(&self) {
        let pushes = std::mem::take(&mut self.state.lock().pushes);
        for push in pushes.into_values() {
            self.finish(push, Some("the control plane stopped"));
        }
        self.queue.complete();
    }

    /// Ends the span of a push: by an ACK, or for this reason.
    fn finish(&self, push: OpenPush, error: Option<&str>) {
        let is_usual = error.is_none() && push.start.instant.elapsed() < SLOW;
        if is_usual && push.change.spans.load(Ordering::Relaxed) >= MOST_USUAL {
            self.omitted.fetch_add(1, Ordering::Relaxed);
            return;
        }
        push.change.spans.fetch_add(1, Ordering::Relaxed);
        self.queue.add(FinishedSpan {
            context: push.context,
            parent: Some(push.change.context.span_id),
            links: push.links,
            name: "push",
            kind: SpanKind::Client,
            start: push.start.wall,
            end: push.start.present(),
            attributes: push.attributes,
            error: error.map(str::to_owned),
        });
    }
}

impl PushObserver for ChangeTraces {
    fn pushed(&self, client: &ClientKey, stream: u64, push: &ObservedPush<'_>) {
        let mut state = self.state.lock();
        let State { pending, pushes } = &mut *state;
        let Some(pending) = pending.get(client) else { return };
        let mut changes = pending.iter().rev().filter(|change| change.has_pushes());
        let Some(change) = changes.next() else { return };
        change.pushes.fetch_add(1, Ordering::Relaxed);
        let key = (stream, push.resource_type);
        let unanswered = pushes.remove(&key);
        if pushes.len() < MOST_OPEN {
            let links = changes.map(|other| other.context).collect();
            let (change, context) = (Arc::clone(change), change.context.new_child());
            let (start, attributes) = (Moment::now(), attributes(&change, client, push));
            pushes.insert(key, OpenPush { change, context, links, start, attributes });
        } else {
            self.omitted.fetch_add(1, Ordering::Relaxed);
        }
        drop(state);
        // Its answer counts for this one: there is one push in flight, except after a late one.
        if let Some(unanswered) = unanswered {
            self.finish(unanswered, Some("not answered before the next push of the type"));
        }
    }

    fn answered(&self, stream: u64, of: ResourceType, nacked: Option<&str>) {
        let push = self.state.lock().pushes.remove(&(stream, of));
        if let Some(push) = push {
            let nacked = nacked.map(|reason| format!("NACK: {reason}"));
            self.finish(push, nacked.as_deref());
        }
    }

    fn ended(&self, stream: u64) {
        for of in ResourceType::ALL {
            let push = self.state.lock().pushes.remove(&(stream, of));
            if let Some(push) = push {
                self.finish(push, Some("the stream ended"));
            }
        }
    }
}

fn attributes(
    change: &TracedChange,
    client: &str,
    push: &ObservedPush<'_>,
) -> Vec<(&'static str, AttributeValue)> {
    let name = |one: &Arc<ironmesh_xds_wire::Resource>| format!("{}@{}", one.name(), one.version());
    let names: Vec<_> = push.resources.iter().take(NAMED).map(name).collect();
    let mut attributes = vec![
        ("ironmesh.change", change.id.as_str().into()),
        ("ironmesh.proxy", client.into()),
        ("xds.type_url", push.resource_type.url().into()),
        ("xds.resources", push.resources.len().into()),
        ("xds.removed", push.removed.into()),
        ("xds.bytes", push.bytes.into()),
        ("xds.names", AttributeValue::Texts(names)),
    ];
    if let Some(version) = push.version {
        attributes.push(("xds.version", version.to_string().into()));
    }
    attributes
}

#[cfg(test)]
mod tests;
