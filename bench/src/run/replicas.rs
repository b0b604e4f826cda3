//! Two control planes that share a store in etcd, each with a fleet; beside two floors, which share the cores in the same
//! way.

use std::time::Duration;

use anyhow::{Context, ensure};
use ironmesh_api::ProxyQuery;
use tokio::time::{Instant, sleep};

use super::RunOptions;
use super::pair::Pair;
use super::parts::{AFTER_CHANGES, CHANGE_ROUNDS, MEMORY, PAUSE, record};
use super::peer::{Both, change_rows, fresh_rows, identities, memory_row, storm_rows};
use crate::etcd::Etcd;
use crate::fleet::{Fleet, VERIFIED_AT_ONCE};
use crate::measure::{Scope, Series};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::messages::Variant;
use crate::noise::Spread;
use crate::process::{allow_connections, cpu_of};
use crate::report::{Row, count, milliseconds};
use crate::shape::{CHANGING, Shape};
use crate::target::{Program, Target};

/// `xds.max_connection_age` would end connections during the measurement.
const SETTINGS: &str = "[xds]\nmax_connection_age = \"30d\"\n";
/// Longer than the lease of the notes of a control plane.
const NOTES_END: Duration = Duration::from_secs(18);

/// Measures two control planes, each with a fleet of this shape.
pub(super) async fn measure(
    options: &RunOptions,
    shape: Shape,
) -> anyhow::Result<(Vec<Row>, Option<Spread>)> {
    ensure!(options.variant == Variant::Delta, "replicas are measured with delta xDS");
    let shape = Shape { proxies: 2 * shape.proxies, ..shape };
    allow_connections(u64::try_from(2 * shape.proxies + VERIFIED_AT_ONCE)?)?;
    let etcd = Etcd::start(&options.etcd, options.patience).await?;
    let prepare = || MeasuredControlPlane::prepare(&options.ironmesh);
    let mut servers = [prepare()?, prepare()?];
    MeasuredControlPlane::share_store(&mut servers, &(SETTINGS.to_owned() + &etcd.settings()))
        .await?;
    for server in &mut servers {
        server.write_policy(shape)?;
        server.run().await?;
    }
    let fleet = enroll(options, shape, &servers).await?;
    let mut ours = Pair::new(servers, fleet)?;
    let measured = ours.measure(options, shape, &etcd).await;
    measured.with_context(|| {
        let logs = ours.servers.each_ref().map(MeasuredControlPlane::log_tail);
        format!("the control planes' logs end with\n{}", logs.join("\n---\n"))
    })
}

/// Enrolls all proxies at the first control plane, and waits until the second one knows them.
async fn enroll(
    options: &RunOptions,
    shape: Shape,
    [first, second]: &[MeasuredControlPlane; 2],
) -> anyhow::Result<Fleet> {
    let enrolled = first.enroll(shape).await?;
    let (client, deadline) = (second.admin(), Instant::now() + options.patience);
    let query = ProxyQuery { limit: Some(1), ..ProxyQuery::default() };
    while client.proxy_page(&query).await?.matching < enrolled.len() {
        ensure!(Instant::now() < deadline, "the second control plane does not know all proxies");
        sleep(PAUSE).await;
    }
    Ok(Fleet::new(enrolled, options.variant, options.delay))
}

impl Pair<MeasuredControlPlane> {
    async fn measure(
        &mut self,
        options: &RunOptions,
        shape: Shape,
        etcd: &Etcd,
    ) -> anyhow::Result<(Vec<Row>, Option<Spread>)> {
        let (clients, patience) = (shape.proxies, options.patience);
        let at_once =
            Scope { cluster: CHANGING, clients, among: clients, pause: Duration::ZERO, patience };
        let scope = Scope { pause: PAUSE, ..at_once };
        let n = count(clients as u64);
        self.connect(at_once).await?;
        self.fleet.quiet(Duration::from_secs(2), patience).await?;
        let memory = self.memory()?;
        let mut floor = self.floor(options, shape).await?;
        let fresh =
            Both { ours: self.connect(at_once).await?, floor: Some(floor.connect(at_once).await?) };
        let memory = Both { ours: memory, floor: Some(floor.memory()?) };
        let mut rows = vec![memory_row(MEMORY, &memory, n)];
        rows.extend(fresh_rows(&fresh, n));

        let (mut changes, mut of_floor) = (Series::default(), Series::default());
        // The first round warms up.
        for round in 0..=CHANGE_ROUNDS {
            let times = if round == 0 { 2 } else { options.events.div_ceil(CHANGE_ROUNDS) };
            let ours = self.changes(scope, times).await?;
            let floor = floor.changes(scope, times).await?;
            if round > 0 {
                changes.extend(ours);
                of_floor.extend(floor);
            }
        }
        let spread = Spread::of(format!("two floors, {shape}"), &of_floor.to_last);
        rows.extend(change_rows(&Both { ours: changes, floor: Some(of_floor) }, n));
        let memory = Both { ours: self.memory()?, floor: Some(floor.memory()?) };
        rows.push(memory_row(AFTER_CHANGES, &memory, n));

        rows.extend(self.idle(options, etcd).await?);
        rows.extend(self.fail_over_unchanged(patience).await?);
        let (mut ours, mut of_floor) = (Vec::new(), Vec::new());
        for _ in 0..options.storms {
            ours.push(self.fail_over(at_once).await?);
            of_floor.push(floor.fail_over(at_once).await?);
        }
        let again = ours.iter().map(|storm| storm.counts.resources).sum();
        let [time, cpu] = storm_rows(&Both { ours, floor: Some(of_floor) }, 1.0);
        rows.push(Row {
            work: "SIGKILL of one: its proxies' last ACK of a change at the other",
            ..time
        });
        rows.push(Row {
            work: "SIGKILL of one: CPU of the other for each of these proxies",
            ..cpu
        });
        let work = "SIGKILL of one: resources beyond that change";
        rows.push(Row::new(work, "each", count(again)).itself_at_most(0.0));

        let verified = self.fleet.verify(self.servers[1].xds(), patience).await?;
        ensure!(verified == clients, "{verified} clients were compared");
        rows.push(Row::new("proxies with exactly the second one's set at the end", "proxies", n));
        rows.push(Row::new("connections that were lost and reopened", "each", count(self.lost())));
        Ok((rows, Some(spread)))
    }

    /// Two floors that send what these control planes send.
    async fn floor(&self, options: &RunOptions, shape: Shape) -> anyhow::Result<Pair<Target>> {
        let contract = record(&self.fleet, &self.servers[0], shape, options.patience).await?;
        let start = || Target::start(Program::Floor(options.own_program.clone()), contract.clone());
        let identities = identities(&contract, shape)?;
        let fleet = Fleet::new(identities, options.variant, options.delay);
        Pair::new([start().await?, start().await?], fleet)
    }

    /// Measures both without changes.
    async fn idle(&self, options: &RunOptions, etcd: &Etcd) -> anyhow::Result<[Row; 2]> {
        let ids = self.ids()?;
        let (begin, cpu, received) = (Instant::now(), cpu_of(&ids)?, etcd.received().await?);
        sleep(options.steady).await;
        let (cpu, received) =
            (cpu_of(&ids)?.saturating_sub(cpu), etcd.received().await? - received);
        let seconds = begin.elapsed().as_secs_f64();
        let work = "idle: CPU of each control plane per second";
        let cpu = Row::new(work, "ms", milliseconds(cpu) / 2.0 / seconds);
        let work = "idle: etcd receives from both per second";
        Ok([cpu, Row::new(work, "bytes", count(received) / seconds)])
    }

    /// Kills the first control plane, and starts it again after its notes have ended. Nothing changes.
    async fn fail_over_unchanged(&mut self, patience: Duration) -> anyhow::Result<[Row; 2]> {
        let before = self.fleet.counts();
        let first = self.kill_first().await? as u64;
        sleep(NOTES_END).await;
        self.fleet.all_configured(patience).await?;
        let moved = self.fleet.counts() - before;
        ensure!(moved.connects >= first, "{} of {first} proxies moved", moved.connects);
        let before = self.fleet.counts();
        self.servers[0].run().await?;
        self.spread(patience).await?;
        let back = self.fleet.counts() - before;
        let row = |work, counts: u64| Row::new(work, "each", count(counts)).itself_at_most(0.0);
        Ok([
            row("SIGKILL of one, no change: resources that proxies receive", moved.resources),
            row("it starts again, all connect again: resources", back.resources),
        ])
    }
}
