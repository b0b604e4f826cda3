//! The reports of 1,000 agents about health and traffic: what they cost the control plane.

use anyhow::{Context, ensure};
use ironmesh_catalog::{ApplicationState, LatencyHistogram, ServiceName, TrafficCounts};
use ironmesh_enrollment::{
    HealthAnswer, HealthReport, ReportedApplication, ReportedFlow, ReportedTraffic, TrafficReport,
};

use super::machines::{Call, Machine, SHAPE, client, run_all};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::process::{cpu, cpu_since, rss};
use crate::report::Row;

/// The service ports that each proxy has called since its last report.
const CALLED: usize = 10;

/// The distinct latencies of each of them, in milliseconds.
const LATENCIES: [u64; 8] = [1, 2, 3, 5, 8, 13, 40, 250];

/// The rounds in which all agents report. The first one creates what later ones change.
const ROUNDS: u64 = 3;

/// Lets all machines report several times, with other counts and, in every round, a tenth of them with another health.
pub(super) async fn measure(
    subject: &mut MeasuredControlPlane,
    mut machines: Vec<Machine>,
) -> anyhow::Result<Vec<Row>> {
    add_health_check(subject)?;
    let (server, count) = (subject.id()?, machines.len());
    let (memory, mut last) = (rss(server)?, None);
    for round in 0..ROUNDS {
        let before = cpu(server)?;
        let calls = machines.into_iter().enumerate();
        let calls = calls.map(|(number, machine)| report(subject, machine, number, round));
        let answered = run_all(calls.collect::<anyhow::Result<Vec<_>>>()?).await?;
        let used = cpu_since(server, before)?;
        let answer = answered.first().map(|(_, answer)| answer.clone());
        last = answer.map(|answer| (answer, used));
        machines = answered.into_iter().map(|(machine, _)| machine).collect();
    }
    let (answer, used) = last.context("no machine has reported")?;
    ensure!(!answer.probes.is_empty(), "the control plane requests no health");
    let interval = answer.traffic_in_seconds.context("the control plane requests no traffic")?;
    let memory = f64::from(u32::try_from(rss(server)?.saturating_sub(memory) / 1024)?);
    let agents = f64::from(u32::try_from(count)?);
    let each = used.as_secs_f64() * 1e6 / agents;
    let seconds = f64::from(u32::try_from(interval)?);
    let bytes = serde_json::to_vec(&health_report(0, 0)?)?.len();
    Ok(vec![
        Row::new("1,000 agents report health and traffic: server's CPU each", "us", each),
        Row::new("the same, for each proxy and minute", "us", each * 60.0 / seconds),
        Row::new("the same: interval of the reports", "s", seconds),
        Row::new("the same: server's memory, for each proxy", "KiB", memory / agents),
        Row::new("a report of 10 called service ports", "B", f64::from(u32::try_from(bytes)?)),
    ])
}

/// Adds a health check to a service of the machines.
fn add_health_check(subject: &mut MeasuredControlPlane) -> anyhow::Result<()> {
    let policy = fs_err::read_to_string(subject.folder().join("policy/services.toml"))?;
    let service = format!("name = \"{}\"\n", probed()?);
    let checked = policy.replacen(&service, &format!("{service}health = {{ tcp = {{}} }}\n"), 1);
    ensure!(checked != policy, "policy has no `{service}`");
    subject.swap("services.toml", &checked)?;
    Ok(())
}

/// The service of the machines that is probed.
fn probed() -> anyhow::Result<String> {
    SHAPE.services_of(0).into_iter().next().context("a group without services")
}

/// The report of a machine in a round, with the answer.
fn report(
    subject: &MeasuredControlPlane,
    machine: Machine,
    number: usize,
    round: u64,
) -> anyhow::Result<Call<(Machine, HealthAnswer)>> {
    let (client, report) = (client(subject, &machine)?, health_report(number, round)?);
    Ok(Box::pin(async move {
        let answer = client.report_health(&machine.identity, &report).await?;
        Ok((machine, answer))
    }))
}

fn health_report(number: usize, round: u64) -> anyhow::Result<HealthReport> {
    let is_failing = number.is_multiple_of(10) && round % 2 == 1;
    let application = ReportedApplication {
        service: probed()?.parse()?,
        port: 80,
        target: 80,
        state: if is_failing { ApplicationState::Unhealthy } else { ApplicationState::Healthy },
        reason: is_failing.then(|| "connection refused".to_owned()),
    };
    let latency: LatencyHistogram = LATENCIES.iter().map(|time| (*time, 10 + round)).collect();
    let requests = latency.count();
    let counts =
        TrafficCounts { requests, responses_2xx: requests, latency, ..TrafficCounts::default() };
    let traffic = ReportedTraffic { in_flight: 1, counts };
    let called = (0..CALLED).filter_map(|group| SHAPE.services_of(group).into_iter().next());
    let flow = |service: String| {
        let service: ServiceName = service.parse()?;
        Ok(ReportedFlow { service, port: 80, traffic: traffic.clone() })
    };
    let outbound = called.map(flow).collect::<anyhow::Result<Vec<_>>>()?;
    let inbound = outbound.first().cloned().into_iter().collect();
    let (batch, outbound_other) = (round + 1, None);
    let traffic = TrafficReport { batch, seconds: 10, outbound, outbound_other, inbound };
    let applications = vec![application];
    Ok(HealthReport { applications, traffic: Some(traffic), ..HealthReport::default() })
}
