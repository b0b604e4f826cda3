//! The runner: it starts a control plane and the floor, enrolls fleets, and measures both alternately.

mod churn;
mod consul;
mod enforcement;
mod idle_agent;
mod in_turn;
mod large_policy;
mod machines;
mod operations;
mod pair;
mod parts;
mod peer;
mod renewals;
mod replicas;
mod reports;
mod scale;
mod target;
mod traffic;

use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use tokio::process::Command;
use tokio::time::Instant;

use crate::consul::Catalog;
use crate::envoy::AckDelay;
use crate::fleet::VERIFIED_AT_ONCE;
use crate::messages::Variant;
use crate::noise::{Noise, Spread};
use crate::process::{allow_connections, machine};
use crate::report::{Report, Row};
use crate::shape::Shape;
pub use churn::ChangeRate;
use parts::Bench;

/// A part of a run.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Part {
    /// Fleets of simulated Envoys, compared with the floor
    Fleets,
    /// Fleets of several sizes, and how figures grow with them
    Scale,
    /// Many changes a second for a minute, with the first fleet
    Churn,
    /// The renewal of all certificates, with the first fleet
    Renewals,
    /// The swap to a large policy
    Policy,
    /// Operators' requests: the wait for a policy revision, and the list of proxies
    Operations,
    /// Machines that enroll by tokens and renew, all at once, and report health and traffic
    Machines,
    /// Two control planes with one store in etcd, each with a fleet of the first size; and the failure of one
    Replicas,
    /// Withdrawal and restoration of a grant, with two real Envoys
    Grants,
    /// Discovery from a real Consul with many services
    Consul,
}

/// The options of a run.
#[derive(Debug, Clone)]
pub struct RunOptions {
    /// The control plane.
    pub ironmesh: PathBuf,
    /// This program, which also runs the floor.
    pub own_program: PathBuf,
    /// A real Envoy.
    pub envoy: PathBuf,
    /// A real Consul.
    pub consul: PathBuf,
    /// A real etcd.
    pub etcd: PathBuf,
    /// A command that runs another control plane, which is measured instead.
    pub target: Option<String>,
    /// Which parts are run.
    pub parts: Vec<Part>,
    /// The fleets.
    pub shapes: Vec<Shape>,
    /// The changes of the part about churn.
    pub churn: ChangeRate,
    /// The time in which all certificates are renewed.
    pub renewals: Duration,
    /// The largest number of proxies of the part about growth.
    pub scale: usize,
    /// The catalog of Consul.
    pub catalog: Catalog,
    /// How long fleets and Consul are idle before their memory and queries count.
    pub steady: Duration,
    /// The xDS variant of the clients. The floor supports delta only, so SotW figures have no comparison.
    pub variant: Variant,
    /// The time that an Envoy needs for an ACK.
    pub delay: AckDelay,
    /// The number of changes in a series.
    pub events: usize,
    /// The number of comparisons with and without misbehaving clients.
    pub fault_runs: usize,
    /// The number of reconnect storms.
    pub storms: usize,
    /// The time limit of each step.
    pub patience: Duration,
}

/// Runs all requested parts.
pub async fn run(options: &RunOptions) -> anyhow::Result<Report> {
    let begin = Instant::now();
    let machine = machine();
    let mut subject = version(&options.ironmesh).await?;
    let (mut rows, mut spreads) = (Vec::<Row>::new(), Vec::new());
    let (mut skipped, mut notes) = (Vec::new(), Vec::new());
    if cfg!(debug_assertions) {
        notes.push("the clients and the floor are a debug build, so ratios are too low".to_owned());
    }
    let of = |shape: &str, row| Row { shape: shape.to_owned(), ..row };
    let has_part = |part| options.target.is_none() && options.parts.contains(&part);
    if let Some(target) = &options.target {
        for shape in &options.shapes {
            let (of_shape, spread) = target::measure(options, target, *shape).await?;
            spreads.extend(spread);
            rows.extend(of_shape.into_iter().map(|row| of(&shape.to_string(), row)));
        }
        subject.clone_from(target);
    }
    if has_part(Part::Fleets) {
        for shape in &options.shapes {
            let (of_shape, spread, note) = fleet(options, *shape).await?;
            spreads.extend(spread);
            notes.extend(note);
            rows.extend(of_shape.into_iter().map(|row| of(&shape.to_string(), row)));
        }
    }
    let mut growth = Vec::new();
    if has_part(Part::Scale) {
        let of_scale = scale::measure(options).await.context("with fleets of several sizes")?;
        rows.extend(of_scale.0);
        growth = of_scale.1;
    }
    for shape in options.shapes.iter().take(1) {
        let of_shape = |row| of(&shape.to_string(), row);
        if has_part(Part::Churn) {
            let churn = churn::measure(options, *shape).await.context("with many changes")?;
            rows.extend(churn.into_iter().map(of_shape));
        }
        if has_part(Part::Renewals) {
            let renewals = renewals::measure(options, *shape).await.context("with renewals")?;
            rows.extend(renewals.into_iter().map(of_shape));
        }
    }
    if has_part(Part::Policy) {
        let policy = large_policy::measure(options).await.context("with a large policy")?;
        rows.extend(policy.into_iter().map(|row| of(LARGE_POLICY, row)));
    }
    if has_part(Part::Operations) {
        let operations = operations::measure(options).await.context("with operators' requests")?;
        let shape = operations::SHAPE.to_string();
        rows.extend(operations.into_iter().map(|row| of(&shape, row)));
    }
    if has_part(Part::Machines) {
        let machines = machines::measure(options).await.context("with machines that enroll")?;
        let shape = machines::SHAPE.to_string();
        rows.extend(machines.into_iter().map(|row| of(&shape, row)));
    }
    let mut has = |what: &str, program: &Path, remedy: &str| {
        let has = program.exists();
        if !has {
            skipped.push(format!("{what}: `{}` does not exist; {remedy}", program.display()));
        }
        has
    };
    if has_part(Part::Replicas) && has(REAL_ETCD, &options.etcd, "`scripts/get-etcd.sh` fetches it")
    {
        for shape in options.shapes.iter().take(1) {
            let measured = replicas::measure(options, *shape).await.context("with replicas")?;
            spreads.extend(measured.1);
            let replicas = format!("two control planes, each with {shape}");
            rows.extend(measured.0.into_iter().map(|row| of(&replicas, row)));
        }
    }
    if has_part(Part::Grants) && has(REAL_ENVOYS, &options.envoy, "`make envoy` fetches it") {
        let enforcement =
            enforcement::measure(&options.ironmesh, &options.envoy, options.patience).await;
        let enforcement = enforcement.context("with real Envoys")?;
        rows.extend(enforcement.into_iter().map(|row| of(REAL_ENVOYS, row)));
    }
    if has_part(Part::Consul)
        && has(REAL_CONSUL, &options.consul, "`scripts/get-consul.sh` fetches it")
    {
        has(
            "a real Envoy that calls services of Consul",
            &options.envoy,
            "`make envoy` fetches it",
        );
        let consul = consul::measure(options).await.context("with a real Consul")?;
        rows.extend(consul.into_iter().map(|row| of(&options.catalog.to_string(), row)));
    }
    let variant = match options.variant {
        Variant::Delta => "delta",
        Variant::Sotw => "state of the world",
    };
    let seconds = begin.elapsed().as_secs_f64();
    let noise = Noise::judge(spreads);
    Ok(Report { machine, subject, variant, noise, notes, skipped, rows, growth, seconds })
}

/// Measures a fleet.
async fn fleet(
    options: &RunOptions,
    shape: Shape,
) -> anyhow::Result<(Vec<Row>, Option<Spread>, Option<String>)> {
    // Open files for the fleet, the floor's fleet and the compared clients. Without enough of them, the floor is measured
    // after the control plane. It does not support SotW.
    let connections = u64::try_from(shape.proxies)?;
    let fits = allow_connections(2 * connections + VERIFIED_AT_ONCE as u64).is_ok();
    if !fits {
        allow_connections(connections + VERIFIED_AT_ONCE as u64)?;
    }
    let is_delta = options.variant == Variant::Delta;
    let mut bench = Bench::open(options, shape, is_delta && fits).await?;
    let of_shape = bench.measure().await;
    let mut rows = of_shape.with_context(|| bench.log_tail())?;
    if fits || !is_delta {
        return Ok((rows, bench.spread(), None));
    }
    let (_subject, contract) = bench.end().await?;
    // Its spread says nothing about the time in which the control plane ran.
    in_turn::add_floor(options, shape, &contract, &mut rows).await?;
    let note = format!(
        "{shape}: `ulimit -Hn` is too low for two fleets, so the floor ran after the control plane"
    );
    Ok((rows, None, Some(note)))
}

const LARGE_POLICY: &str = "a policy of 1,000 services, 1,000 splits and 5,000 rules";
const REAL_ENVOYS: &str = "two real Envoys";
const REAL_CONSUL: &str = "a real Consul";
const REAL_ETCD: &str = "two control planes with one store in etcd";

async fn version(ironmesh: &Path) -> anyhow::Result<String> {
    let output = Command::new(ironmesh).arg("--version").output().await;
    let output = output.with_context(|| format!("cannot run `{}`", ironmesh.display()))?;
    Ok(String::from_utf8_lossy(&output.stdout).trim().to_owned())
}
