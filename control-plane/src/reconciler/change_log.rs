//! The log of changes: each has an id in all its lines, from the pass that finds it to the last ACK.
//!
//! Its cost follows the number of changes in a pass. It never looks at a single ACK: convergence counts these.

use std::sync::Arc;

use ironmesh_catalog::{PolicyRevision, ProxyId};
use ironmesh_xds_server::ClientKey;
use tokio::time::{Duration, Instant};

use super::convergence::{Convergence, Generations, Kind, Lag};
use crate::change_traces::{ChangeEnd, ChangeTraces, Moment, TracedChange};

/// When the log names the proxies that have not ACKed a change: each wait for an ACK ends by then.
const LATE: Duration = Duration::from_secs(15);

/// The longest time of a trace: a proxy that never answers must not keep it from the collector.
const LONGEST_TRACE: Duration = Duration::from_secs(5 * 60);

/// The most changes of a kind whose end is awaited. A further one supersedes one of them.
const MAX_OPEN: usize = 16;

/// The most proxies that a line names.
const NAMED: usize = 5;

/// The characters of a policy revision in the id of its change.
const REVISION: usize = 12;

/// What has changed in the inputs of a snapshot.
#[expect(clippy::struct_excessive_bools, reason = "each input changes by itself")]
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct ChangedInputs {
    /// The settings, which have the default modes.
    pub(super) settings: bool,
    /// What the endpoints providers report.
    pub(super) providers: bool,
    /// The health of applications.
    pub(super) health: bool,
    /// The join records.
    pub(super) proxies: bool,
    /// The proxies that leave or are cordoned.
    pub(super) leaves: bool,
}

impl ChangedInputs {
    fn of_policy(self) -> &'static str {
        if self.settings { "settings" } else { "policy" }
    }

    fn of_endpoints(self) -> String {
        let all = [
            ("providers", self.providers),
            ("health", self.health),
            ("proxies", self.proxies),
            ("leaves", self.leaves),
        ];
        let changed = all.into_iter().filter(|(_, is_changed)| *is_changed);
        changed.map(|(name, _)| name).collect::<Vec<_>>().join(",")
    }
}

/// The changes that are not ACKed, by kind.
#[derive(Debug)]
pub(super) struct ChangeLog {
    /// What distinguishes the numbers of this process from those of the one before.
    start: String,
    /// The numbers of the newest changes.
    known: Generations,
    open: Vec<OpenChange>,
    /// The traces of the changes, if they are exported.
    traces: Option<Arc<ChangeTraces>>,
    /// When the current pass began, if there are traces.
    pass: Option<Moment>,
}

/// A change that some proxies have not ACKed.
#[derive(Debug)]
struct OpenChange {
    kind: Kind,
    number: u64,
    id: String,
    /// Whether its lines have the level `info`: an operator made it.
    is_info: bool,
    found_at: Instant,
    /// How many proxies it was published to; none before it is published.
    proxies: Option<usize>,
    is_late: bool,
    trace: Option<Arc<TracedChange>>,
}

/// A line of the level `info` or `debug`.
macro_rules! line {
    ($is_info:expr, $($fields:tt)*) => {
        if $is_info { tracing::info!($($fields)*) } else { tracing::debug!($($fields)*) }
    };
}

impl ChangeLog {
    /// An empty log of a process with this start, in seconds of the Unix epoch.
    pub(super) fn new(start: i64) -> Self {
        let (start, known) = (format!("{start:x}"), Generations::default());
        Self { start, known, open: Vec::new(), traces: None, pass: None }
    }

    /// Exports a trace of each change from now on.
    pub(super) fn trace(&mut self, traces: Arc<ChangeTraces>) {
        self.traces = Some(traces);
    }

    /// Notes that a pass begins.
    pub(super) fn begin_pass(&mut self) {
        self.pass = self.traces.is_some().then(Moment::now);
    }

    /// Notes that the pass is about to publish what it has found to a proxy, which has a set already.
    pub(super) fn assign(&self, client: &ClientKey) {
        let Some(traces) = &self.traces else { return };
        let found = self.open.iter().filter(|open| open.proxies.is_none());
        let mut found = found.filter_map(|open| open.trace.as_ref()).peekable();
        if found.peek().is_some() {
            traces.assign(client, found.collect::<Vec<_>>().into_iter());
        }
    }

    /// Notes that a proxy has ACKed everything, or has nothing to ACK.
    pub(super) fn settle(&self, client: &str) {
        if let Some(traces) = &self.traces {
            traces.settle(client);
        }
    }

    /// Ends all traces, because the control plane stops.
    pub(super) fn complete(&mut self) {
        let Some(traces) = &self.traces else { return };
        for open in &mut self.open {
            open.end_trace(Some(traces), ChangeEnd::Shutdown);
        }
        traces.complete();
    }

    /// Notes what a pass has found, before it compiles.
    pub(super) fn find(
        &mut self,
        newest: Generations,
        revision: &PolicyRevision,
        inputs: ChangedInputs,
        now: Instant,
    ) {
        let known = std::mem::replace(&mut self.known, newest);
        if newest.policy > known.policy {
            let open = self.new_change(Kind::Policy, Some(policy_change(revision)), true, now);
            self.open(open, inputs.of_policy());
        }
        if newest.endpoints > known.endpoints {
            let is_info = newest.leaves > known.leaves;
            let open = self.new_change(Kind::Endpoints, None, is_info, now);
            self.open(open, &inputs.of_endpoints());
        }
        if newest.certificates > known.certificates {
            let open = self.new_change(Kind::Certificates, None, false, now);
            self.open(open, "certificates");
        }
    }

    /// The newest change of a kind.
    fn new_change(
        &self,
        kind: Kind,
        id: Option<String>,
        is_info: bool,
        found_at: Instant,
    ) -> OpenChange {
        let number = kind.of(self.known);
        let id = id.unwrap_or_else(|| format!("{}-{}-{number}", kind.word(), self.start));
        OpenChange {
            kind,
            number,
            id,
            is_info,
            found_at,
            proxies: None,
            is_late: false,
            trace: None,
        }
    }

    fn open(&mut self, mut change: OpenChange, inputs: &str) {
        line!(change.is_info, change = change.id, inputs, "change found");
        let kind = change.kind;
        let is_of_kind = |open: &OpenChange| open.kind == kind;
        let of_kind = || self.open.iter().enumerate().filter(|(_, open)| is_of_kind(open));
        // The oldest stays until the log has named its laggards: a proxy that never answers must be reported, however many
        // changes follow.
        let next = of_kind().enumerate().find(|(place, (_, open))| open.is_late || *place > 0);
        let next = next.filter(|_| of_kind().count() >= MAX_OPEN).map(|(_, (index, _))| index);
        if let Some(index) = next {
            let mut superseded = self.open.remove(index);
            superseded.end_trace(self.traces.as_deref(), ChangeEnd::Superseded);
            superseded.supersede(&change);
        }
        let trace = |start| ChangeTraces::begin(&change.id, kind.word(), inputs, start);
        change.trace = self.pass.map(trace).map(Arc::new);
        self.open.push(change);
    }

    /// Notes to how many proxies a pass has published what it found.
    pub(super) fn publish(&mut self, proxies: usize) {
        for open in self.open.iter_mut().filter(|open| open.proxies.is_none()) {
            open.proxies = Some(proxies);
            if let Some((traces, trace)) = self.traces.as_ref().zip(open.trace.as_ref()) {
                traces.reconciled(trace, proxies);
            }
            line!(open.is_info, change = open.id, proxies, "change published");
        }
    }

    /// Ends the changes that are ACKed after a pass, and reports those that are late.
    pub(super) fn end_pass(&mut self, convergence: &Convergence, now: Instant) {
        let traces = self.traces.as_deref();
        self.open.retain_mut(|open| {
            let age = now - open.found_at;
            if !convergence.durations().is_pending(open.kind, open.number) {
                let duration_ms = milliseconds(age);
                let proxies = open.proxies.unwrap_or_default();
                let nacking = laggards(convergence, open.kind, open.number, Lag::is_nacked);
                let (nacked, is_info) = (nacking.count(), open.is_info);
                open.end_trace(traces, ChangeEnd::Answered { nacked });
                line!(is_info, change = open.id, proxies, nacked, duration_ms, "change ACKed");
                return false;
            }
            if age >= LONGEST_TRACE {
                open.end_trace(traces, ChangeEnd::Late);
            }
            if age >= LATE && !open.is_late {
                let is_late = |lag: Lag| !lag.is_nacked();
                let mut late = laggards(convergence, open.kind, open.number, is_late);
                open.is_late = true;
                let named: Vec<_> = late.by_ref().take(NAMED).map(|id| id.to_string()).collect();
                let (named, others) = (named.join(","), late.count());
                tracing::warn!(
                    change = open.id,
                    seconds = age.as_secs(),
                    laggards = named,
                    others,
                    action = "`ironmesh proxy list --state stale` shows why",
                    "change not ACKed by all proxies"
                );
            }
            true
        });
    }
}

impl OpenChange {
    /// Ends its trace, if it has one.
    fn end_trace(&mut self, traces: Option<&ChangeTraces>, end: ChangeEnd) {
        if let Some((traces, trace)) = traces.zip(self.trace.take()) {
            traces.end(&trace, self.proxies.unwrap_or_default(), end);
        }
    }

    /// Ends it before it is ACKed, because `newest` is one more than the log follows.
    fn supersede(self, newest: &Self) {
        let duration_ms = milliseconds(newest.found_at - self.found_at);
        let (proxies, by) = (self.proxies.unwrap_or_default(), &newest.id);
        line!(self.is_info, change = self.id, proxies, by, duration_ms, "change superseded");
    }
}

fn milliseconds(duration: Duration) -> u64 {
    u64::try_from(duration.as_millis()).unwrap_or(u64::MAX)
}

/// The id of a change of policy. It is the same in all control planes.
pub(crate) fn policy_change(revision: &PolicyRevision) -> String {
    let text = &*revision.0;
    format!("policy-{}", text.get(..REVISION).unwrap_or(text))
}

/// The connected proxies that a change reached, and that have not ACKed it for such a reason.
fn laggards(
    convergence: &Convergence,
    kind: Kind,
    number: u64,
    is_such: impl Fn(Lag) -> bool,
) -> impl Iterator<Item = ProxyId> {
    let pending = convergence
        .laggards()
        .iter()
        .filter(move |(_, laggard)| laggard.lacks(kind, number) && is_such(laggard.lag));
    pending.map(|(id, _)| *id)
}

#[cfg(test)]
mod tests;
