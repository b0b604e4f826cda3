//! Another xDS control plane beside the floor, both with the recorded resources of a fleet of Ironmesh.

use std::time::Duration;

use anyhow::{Context, ensure};

use super::RunOptions;
use super::parts::{AFTER_CHANGES, CHANGE_ROUNDS, MEMORY, PAUSE, record};
use super::peer::{Both, Memory, Peer, change_rows, fresh_rows, memory_row, storm_rows};
use crate::fleet::{Fleet, VERIFIED_AT_ONCE};
use crate::measure::{Scope, Series, Storm};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::messages::Variant;
use crate::noise::Spread;
use crate::process::allow_connections;
use crate::report::{Row, count};
use crate::shape::{CHANGING, Shape};
use crate::target::{Contract, Program};

/// Measures the command `target`.
pub(super) async fn measure(
    options: &RunOptions,
    target: &str,
    shape: Shape,
) -> anyhow::Result<(Vec<Row>, Option<Spread>)> {
    ensure!(options.variant == Variant::Delta, "a target is measured with delta xDS");
    allow_connections(u64::try_from(2 * shape.proxies + VERIFIED_AT_ONCE)?)?;
    let (_subject, contract) = prepare(options, shape).await?;
    let ours = Peer::start(Program::Shell(target.to_owned()), &contract, shape, options);
    let ours = ours.await.with_context(|| format!("cannot start `{target}`"))?;
    let floor = Program::Floor(options.own_program.clone());
    let floor = Peer::start(floor, &contract, shape, options).await?;
    Sides { options, shape, ours, floor }.measure().await
}

/// Writes the files of the contract. The control plane that recorded the resources has ended; its folder is kept.
async fn prepare(
    options: &RunOptions,
    shape: Shape,
) -> anyhow::Result<(MeasuredControlPlane, Contract)> {
    let mut subject = MeasuredControlPlane::start(&options.ironmesh, shape).await?;
    let fleet = Fleet::new(subject.enroll(shape).await?, options.variant, options.delay);
    fleet.connect(subject.xds(), true);
    fleet.all_configured(options.patience).await?;
    fleet.quiet(Duration::from_secs(2), options.patience).await?;
    let contract = record(&fleet, &subject, shape, options.patience).await?;
    subject.kill().await?;
    Ok((subject, contract))
}

/// The target and the floor.
struct Sides<'a> {
    options: &'a RunOptions,
    shape: Shape,
    ours: Peer,
    floor: Peer,
}

impl Sides<'_> {
    async fn measure(mut self) -> anyhow::Result<(Vec<Row>, Option<Spread>)> {
        let (clients, patience) = (self.shape.proxies, self.options.patience);
        let at_once =
            Scope { cluster: CHANGING, clients, among: clients, pause: Duration::ZERO, patience };
        let n = count(u64::try_from(clients)?);
        let ours = self.ours.connect(at_once).await?;
        let fresh = Both { ours, floor: Some(self.floor.connect(at_once).await?) };
        let mut rows = vec![memory_row(MEMORY, &self.memory()?, n)];
        rows.extend(fresh_rows(&fresh, n));
        let changes = self.changes(Scope { pause: PAUSE, ..at_once }).await?;
        rows.extend(change_rows(&changes, n));
        let times = changes.floor.as_ref().map(|series| &*series.to_last);
        let spread = times.map(|times| Spread::of(self.shape.to_string(), times));
        rows.push(memory_row(AFTER_CHANGES, &self.memory()?, n));
        rows.extend(storm_rows(&self.storms(at_once).await?, n));
        for (side, name) in [(&self.ours, "the target"), (&self.floor, "the floor")] {
            let verified = side.verify(patience).await.with_context(|| name.to_owned())?;
            ensure!(verified == clients, "{verified} clients of {name} were compared");
        }
        rows.push(Row::new("proxies with exactly the server's set at the end", "proxies", n));
        Ok((rows, spread))
    }

    fn memory(&self) -> anyhow::Result<Both<Memory>> {
        Ok(Both { ours: self.ours.memory()?, floor: Some(self.floor.memory()?) })
    }

    /// Makes changes, alternately on both sides. The first round warms up.
    async fn changes(&mut self, scope: Scope<'_>) -> anyhow::Result<Both<Series>> {
        let (mut ours, mut floor) = (Series::default(), Series::default());
        for round in 0..=CHANGE_ROUNDS {
            let times = if round == 0 { 2 } else { self.options.events.div_ceil(CHANGE_ROUNDS) };
            let both =
                [self.ours.changes(scope, times).await?, self.floor.changes(scope, times).await?];
            if round > 0 {
                let [of_ours, of_floor] = both;
                ours.extend(of_ours);
                floor.extend(of_floor);
            }
        }
        Ok(Both { ours, floor: Some(floor) })
    }

    async fn storms(&mut self, scope: Scope<'_>) -> anyhow::Result<Both<Vec<Storm>>> {
        let (mut ours, mut floor) = (Vec::new(), Vec::new());
        for _ in 0..self.options.storms {
            ours.push(self.ours.storm(scope).await?);
            floor.push(self.floor.storm(scope).await?);
        }
        Ok(Both { ours, floor: Some(floor) })
    }
}
