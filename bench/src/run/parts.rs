//! The measurements with one fleet.

use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::time::{Instant, sleep};

use super::RunOptions;
use super::peer::{Both, CPU, Memory, Peer, change_rows, fresh_rows, memory_row, storm_rows};
use crate::client::Faults;
use crate::fleet::Fleet;
use crate::identity::Identity;
use crate::measure::{Scope, Series, Storm, median, series, storm};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::messages::Variant;
use crate::noise::Spread;
use crate::process::{cpu, cpu_since, rss};
use crate::report::{Row, count, microseconds, milliseconds};
use crate::shape::{CHANGING, GROWING, PRIVATE, Shape};
use crate::target::{Contract, Program};

/// A control plane and the floor, each with the same fleet.
pub(super) struct Bench<'a> {
    options: &'a RunOptions,
    shape: Shape,
    subject: MeasuredControlPlane,
    fleet: Fleet,
    /// Whether the floor is measured, too.
    has_floor: bool,
    floor: Option<Peer>,
    /// The connections that ended because the runner killed the server.
    killed: u64,
    /// How much the floor's changes vary.
    spread: Option<Spread>,
}

pub(super) const AFTER_CHANGES: &str = "memory per proxy after changes and reconnects";
pub(super) const AFTER_STORMS: &str = "memory per proxy after storms, idle";
pub(super) const NEW_PROXY: &str = "a new proxy: server's CPU per receiving proxy";
pub(super) const MEMORY: &str = "memory per connected, configured proxy";

impl<'a> Bench<'a> {
    pub(super) async fn open(
        options: &'a RunOptions,
        shape: Shape,
        has_floor: bool,
    ) -> anyhow::Result<Self> {
        let subject = MeasuredControlPlane::start(&options.ironmesh, shape).await?;
        let fleet = Fleet::new(Vec::new(), options.variant, options.delay);
        Ok(Self { options, shape, subject, fleet, has_floor, floor: None, killed: 0, spread: None })
    }

    /// Records the resources of the first client, and ends the control plane. Its folder stays.
    pub(super) async fn end(self) -> anyhow::Result<(MeasuredControlPlane, Contract)> {
        let Self { options, shape, mut subject, fleet, .. } = self;
        let contract = record(&fleet, &subject, shape, options.patience).await?;
        subject.kill().await?;
        Ok((subject, contract))
    }

    pub(super) fn spread(&self) -> Option<Spread> {
        self.spread.clone()
    }

    pub(super) fn log_tail(&self) -> String {
        let log = self.subject.log_tail();
        if log.is_empty() {
            "the control plane's log is empty".to_owned()
        } else {
            format!("the control plane's log ends with\n{log}")
        }
    }

    /// Runs all measurements, in order.
    pub(super) async fn measure(&mut self) -> anyhow::Result<Vec<Row>> {
        let mut rows = Vec::new();
        let begin = Instant::now();
        let identities = self.subject.enroll(self.shape).await?;
        let enrollment = begin.elapsed();
        let memory = self.first_connection(identities, &mut rows).await?;
        rows.push(Row::new(
            "`proxy bootstrap` of all proxies, ten per call",
            "ms",
            milliseconds(enrollment),
        ));
        self.changes(&mut rows).await?;
        self.few(&mut rows).await?;
        self.additions(&mut rows).await?;
        self.faults(&mut rows).await?;
        self.churn(&mut rows, memory.ours).await?;
        self.storms(&mut rows).await?;
        self.idle(&mut rows, memory.ours).await?;
        let patience = self.options.patience;
        let verified = self.fleet.verify(self.subject.xds(), patience).await?;
        ensure!(verified == self.shape.proxies, "{verified} clients were compared");
        let work = "proxies with exactly the server's set at the end";
        rows.push(Row::new(work, "proxies", count(verified as u64)));
        let lost = self.fleet.counts().lost - self.killed;
        rows.push(Row::new("connections that were lost and reopened", "each", count(lost)));
        Ok(rows)
    }

    fn scope(&self, pause: Duration) -> Scope<'static> {
        let (clients, patience) = (self.shape.proxies, self.options.patience);
        Scope { cluster: CHANGING, clients, among: clients, pause, patience }
    }

    /// Connects all clients for the first time, and then again fresh.
    async fn first_connection(
        &mut self,
        identities: Vec<Identity>,
        rows: &mut Vec<Row>,
    ) -> anyhow::Result<Both<Memory>> {
        let (server, patience) = (self.subject.id()?, self.options.patience);
        let (variant, delay) = (self.options.variant, self.options.delay);
        let empty = rss(server)?;
        self.fleet = Fleet::new(identities, variant, delay);
        let xds = self.subject.xds();
        let (begin, cpu_before) = (Instant::now(), cpu(server)?);
        self.fleet.connect(xds, true);
        let end = self.fleet.all_configured(patience).await?;
        self.fleet.quiet(Duration::from_secs(2), patience).await?;
        let first =
            Storm { time: end - begin, cpu: cpu_since(server, cpu_before)?, ..Storm::default() };
        let full = rss(server)?;
        let mut memory = Both { ours: Memory { empty, full }, floor: None };
        let own = count(self.fleet.distinct_bytes()) / 1e3 / self.n();
        let ours = storm(&self.fleet, &[xds], &[server], true, self.scope(Duration::ZERO)).await?;
        let mut both = Both { ours, floor: None };
        if self.has_floor {
            let floor = self.open_floor().await?;
            both.floor = Some(floor.connect(self.scope(Duration::ZERO)).await?);
            memory.floor = Some(floor.memory()?);
            self.floor = Some(floor);
        }
        let n = self.n();
        rows.push(memory_row(MEMORY, &memory, n));
        let work = "distinct contents that proxies received: per proxy";
        rows.push(Row::new(work, "KB", own));
        let fresh = fresh_rows(&both, n);
        rows.extend(fresh);
        let work = "all connect for the first time: to the last configured";
        rows.push(Row::new(work, "ms", milliseconds(first.time)));
        let work = "all connect for the first time: CPU per proxy, beside fresh";
        let first = Row::new(work, "us", microseconds(first.cpu) / n);
        rows.push(first.beside(microseconds(both.ours.cpu) / n).at_most(2.0));
        Ok(memory)
    }

    fn n(&self) -> f64 {
        count(self.shape.proxies as u64)
    }

    async fn open_floor(&self) -> anyhow::Result<Peer> {
        let options = self.options;
        let contract = record(&self.fleet, &self.subject, self.shape, options.patience).await?;
        let program = Program::Floor(options.own_program.clone());
        Peer::start(program, &contract, self.shape, options).await
    }

    /// Changes the public service, alternately on the control plane and on the floor.
    async fn changes(&mut self, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let scope = self.scope(PAUSE);
        let mut both = Both { ours: Series::default(), floor: None::<Series> };
        let sets = self.subject.metric("ironmesh_xds_sets").await?;
        // The first round warms up.
        for round in 0..=CHANGE_ROUNDS {
            let times = if round == 0 { 2 } else { self.options.events.div_ceil(CHANGE_ROUNDS) };
            let ours = self.change_all(scope, times).await?;
            let floor = self.change_floor(scope, times).await?;
            if round > 0 {
                both.ours.extend(ours);
                if let Some(floor) = floor {
                    both.floor.get_or_insert_default().extend(floor);
                }
            }
        }
        let sets = self.subject.metric("ironmesh_xds_sets").await? - sets;
        self.spread = both.floor.as_ref().map(|s| Spread::of(self.shape.to_string(), &s.to_last));
        let (events, n) = (count(both.ours.to_last.len() as u64), self.n());
        rows.extend(change_rows(&both, n));
        let work = "one change: responses per proxy";
        rows.push(Row::new(work, "each", count(both.ours.counts.responses) / events / n));
        let work = "one change: sets published per proxy";
        rows.push(Row::new(work, "each", count(sets) / (events + 2.0) / n));
        Ok(())
    }

    async fn change_all(&mut self, scope: Scope<'_>, times: usize) -> anyhow::Result<Series> {
        let (server, subject) = (self.subject.id()?, &mut self.subject);
        series(&self.fleet, &[server], scope, times, async || subject.change()).await
    }

    async fn change_floor(
        &mut self,
        scope: Scope<'_>,
        times: usize,
    ) -> anyhow::Result<Option<Series>> {
        let Some(floor) = &mut self.floor else { return Ok(None) };
        floor.changes(scope, times).await.map(Some)
    }

    /// Changes the private service.
    async fn few(&mut self, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let clients = self.shape.callers_of_private();
        let scope = Scope { cluster: PRIVATE, clients, ..self.scope(PAUSE) };
        let all = rows.iter().find(|row| row.work == CPU).map(|row| row.ours);
        let all = all.context("no CPU of all")?;
        let (server, subject) = (self.subject.id()?, &mut self.subject);
        let change = async || subject.change_private();
        let few = series(&self.fleet, &[server], scope, self.options.events, change).await?;
        let work = "a change for few proxies: to the last ACK, median";
        rows.push(Row::new(work, "ms", milliseconds(median(&few.to_last))));
        let work = "a change for few proxies: CPU per receiving proxy, beside all";
        rows.push(Row::new(work, "us", microseconds(few.cpu_each())).beside(all));
        // The difference between all and few is the cost of each further proxy; the rest is the fixed cost.
        let (receivers, n) = (count(clients as u64), self.n());
        let of_few = microseconds(few.cpu_each()) * receivers;
        let each = (all * n - of_few) / (n - receivers);
        let work = "one change: marginal CPU per proxy";
        rows.push(Row::new(work, "us", each));
        let work = "one edited document: CPU of the change itself";
        let row = Row::new(work, "ms", (of_few - receivers * each) / 1e3);
        rows.push(row.itself_at_most(3.0));
        let events = count(few.to_last.len() as u64);
        let work = "a change for few proxies: responses to others";
        let stray = few.counts.responses.saturating_sub((clients * few.to_last.len()) as u64);
        rows.push(Row::new(work, "each", count(stray) / events).itself_at_most(0.0));
        Ok(())
    }

    /// Connects new proxies in sequence, each of which adds an endpoint to a public service.
    async fn additions(&self, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let (server, xds) = (self.subject.id()?, self.subject.xds());
        let mut new_identities = self.subject.enroll_more(self.shape).await?;
        let times = new_identities.len().min(self.options.events);
        let (variant, delay) = (self.options.variant, self.options.delay);
        let mut connected = Vec::new();
        let scope = Scope { cluster: GROWING.1, ..self.scope(PAUSE) };
        let change = async || {
            let one = Fleet::new(new_identities.pop().into_iter().collect(), variant, delay);
            let begin = Instant::now();
            one.connect(xds, true);
            connected.push(one);
            Ok(begin)
        };
        let series = series(&self.fleet, &[server], scope, times, change).await?;
        let work = "a new proxy adds an endpoint for all: to the last ACK, median";
        rows.push(Row::new(work, "ms", milliseconds(median(&series.to_last))));
        let floor = rows.iter().find(|row| row.work == CPU).and_then(|row| row.floor);
        rows.push(
            Row::new(NEW_PROXY, "us", microseconds(series.cpu_each())).floor(floor).at_most(1.5),
        );
        Ok(())
    }

    /// Measures the other clients while one in a hundred NACKs, is silent or reads slowly.
    async fn faults(&mut self, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        const TIMES: usize = 3;
        let bad = (self.shape.proxies / 100).max(1);
        let (nacking, silent) = (bad.div_ceil(3), bad.saturating_sub(1).div_ceil(3));
        let faults = Faults { nacking, silent, slow: bad - nacking - silent };
        let good = self.shape.proxies - bad;
        let scope = Scope { clients: good, among: good, ..self.scope(PAUSE) };
        let (mut without, mut with) = (Series::default(), Series::default());
        for _ in 0..self.options.fault_runs {
            for (faults, into) in [(Faults::default(), &mut without), (faults, &mut with)] {
                self.fleet.set_faults(faults);
                sleep(PAUSE).await;
                let (server, subject) = (self.subject.id()?, &mut self.subject);
                into.extend(
                    series(&self.fleet, &[server], scope, TIMES, async || subject.change()).await?,
                );
            }
        }
        self.fleet.set_faults(Faults::default());
        // Misbehaving clients get the current resources when they reconnect fresh.
        let (xds, server) = (self.subject.xds(), self.subject.id()?);
        storm(&self.fleet, &[xds], &[server], true, self.scope(PAUSE)).await?;
        let (without, with) = (median(&without.to_last), median(&with.to_last));
        let work = "1 % NACK, are silent or slow: others' last ACK, beside none";
        let row = Row::new(work, "ms", milliseconds(with));
        rows.push(row.beside(milliseconds(without)).at_most(1.05));
        Ok(())
    }

    /// Measures the memory after repeated reconnects and changes.
    async fn churn(&mut self, rows: &mut Vec<Row>, begun: Memory) -> anyhow::Result<()> {
        let (xds, server) = (self.subject.xds(), self.subject.id()?);
        let mut after_first = None;
        for _ in 0..=self.options.storms {
            self.fleet.connect(xds, false);
            self.fleet.all_configured(self.options.patience).await?;
            self.change_all(self.scope(PAUSE), 2).await?;
            if let Some(floor) = &self.floor {
                floor.reconnect(self.options.patience).await?;
            }
            self.change_floor(self.scope(PAUSE), 2).await?;
            after_first.get_or_insert(rss(server)?);
        }
        rows.push(self.memory(AFTER_CHANGES, begun)?);
        let after = rss(server)?;
        let work = "memory after changes and reconnects, beside the first reconnect";
        let first = after_first.unwrap_or(after);
        rows.push(Row::new(work, "MB", count(after) / 1e6).beside(count(first) / 1e6).at_most(1.1));
        Ok(())
    }

    /// Measures the memory after some time without changes. Both servers were restarted by the storms.
    async fn idle(&self, rows: &mut Vec<Row>, begun: Memory) -> anyhow::Result<()> {
        sleep(self.options.steady).await;
        rows.push(self.memory(AFTER_STORMS, begun)?);
        Ok(())
    }

    /// The memory of both servers now.
    fn memory(&self, work: &'static str, begun: Memory) -> anyhow::Result<Row> {
        let ours = Memory { full: rss(self.subject.id()?)?, ..begun };
        let floor = self.floor.as_ref().map(Peer::memory).transpose()?;
        Ok(memory_row(work, &Both { ours, floor }, self.n()))
    }

    /// Kills and restarts the server, with one changed endpoint, and reconnects all clients at once. The storm ends when
    /// all have the change. Any other pushed resource counts as sent again.
    async fn storms(&mut self, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let mut both = Both { ours: Vec::new(), floor: None };
        let (mut starts, mut scope) = (Vec::new(), self.scope(Duration::ZERO));
        scope.clients = self.shape.proxies;
        for _ in 0..self.options.storms {
            let lost = self.fleet.counts().lost;
            self.subject.kill().await?;
            // Clients reconnect on order: all at once, when the server is ready.
            self.fleet.disconnect();
            self.subject.change()?;
            let begin = Instant::now();
            self.subject.run().await?;
            starts.push(begin.elapsed());
            self.killed += self.fleet.counts().lost - lost;
            let (xds, server) = (self.subject.xds(), self.subject.id()?);
            both.ours.push(storm(&self.fleet, &[xds], &[server], false, scope).await?);
            if let Some(floor) = &mut self.floor {
                both.floor.get_or_insert_with(Vec::new).push(floor.storm(scope).await?);
            }
        }
        let n = self.n();
        rows.extend(storm_rows(&both, n));
        let again =
            |storm: &Storm| storm.counts.resources.saturating_sub(self.shape.proxies as u64);
        let again: u64 = both.ours.iter().map(again).sum();
        let row = Row::new("SIGKILL, restart: resources sent again", "each", count(again));
        rows.push(if self.options.variant == Variant::Delta {
            row.itself_at_most(0.0)
        } else {
            row
        });
        let bytes: u64 = both.ours.iter().map(|storm| storm.counts.bytes).sum();
        let storms = count(both.ours.len() as u64);
        rows.push(Row::new(
            "SIGKILL, restart: received per proxy",
            "bytes",
            count(bytes) / storms / n,
        ));
        let work = "SIGKILL, restart: until the control plane is ready";
        rows.push(Row::new(work, "ms", milliseconds(median(&starts))));
        Ok(())
    }
}

/// Records the resources of the first client, for the targets of this fleet.
pub(super) async fn record(
    fleet: &Fleet,
    subject: &MeasuredControlPlane,
    shape: Shape,
    patience: Duration,
) -> anyhow::Result<Contract> {
    let recorded = fleet.record(subject.xds(), patience).await?;
    let (folder, roots) = (subject.folder(), subject.first_proxy().join("ca.crt"));
    Contract::write(folder, &recorded, folder.join("proxies"), roots, shape.services)
}

/// The rounds of changes in which both sides alternate, after one that warms up.
pub(super) const CHANGE_ROUNDS: usize = 4;
/// The pause between two changes, which is longer than the debounce.
pub(super) const PAUSE: Duration = Duration::from_millis(120);
