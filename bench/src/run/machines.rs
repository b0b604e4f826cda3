//! Machines that enroll by tokens and renew their certificates, all at once, beside a connected fleet.

use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use ironmesh_api::TokenRequest;
use ironmesh_catalog::{Domain, Labels, Locality, Secret, TrustBundle, TrustDomain};
use ironmesh_cert::generate_proxy_key_and_csr;
use ironmesh_enrollment::{
    CaHash, ControlPlaneAddress, EnrollRequest, Enrolled, EnrollmentClient, MachineIdentity,
    RenewRequest, ServerTrust,
};
use tokio::sync::Semaphore;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::{RunOptions, idle_agent, reports};
use crate::fleet::Fleet;
use crate::measure::{Scope, arrival, median};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::process::{allow_connections, cpu, cpu_since};
use crate::report::{Row, milliseconds};
use crate::shape::{CHANGING, Shape};

/// The fleet beside which the machines enroll and renew.
pub(super) const SHAPE: Shape = Shape::new(200, 20);
const MACHINES: usize = 1000;
/// The machines that are served at once. All come from one address, which may have few more connections.
const AT_ONCE: usize = 100;
/// The number of changes whose median counts, without renewals and during them.
const CHANGES: usize = 8;
const PAUSE: Duration = Duration::from_millis(300);
/// The goal of all renewals.
const RENEWAL_GOAL: f64 = 60_000.0;

/// An enrolled machine.
pub(super) struct Machine {
    pub(super) identity: MachineIdentity,
    pub(super) request: String,
    pub(super) roots: String,
}

pub(super) async fn measure(options: &RunOptions) -> anyhow::Result<Vec<Row>> {
    allow_connections(u64::try_from(SHAPE.proxies + AT_ONCE)?)?;
    let mut subject = MeasuredControlPlane::start(&options.ironmesh, SHAPE).await?;
    let measured = rows(options, &mut subject).await;
    measured.with_context(|| format!("the control plane's log ends with\n{}", subject.log_tail()))
}

async fn rows(
    options: &RunOptions,
    subject: &mut MeasuredControlPlane,
) -> anyhow::Result<Vec<Row>> {
    let fleet = Fleet::new(subject.enroll(SHAPE).await?, options.variant, options.delay);
    fleet.connect(subject.xds(), true);
    fleet.all_configured(options.patience).await?;
    fleet.quiet(PAUSE, options.patience).await?;
    let alone = median(&changes(options, subject, &fleet).await?);

    let (machines, enrolled) = all_at_once(subject, enroll_all(subject).await?).await?;
    let renewals = machines.into_iter().map(|machine| renew(subject, machine));
    let renewals = renewals.collect::<anyhow::Result<Vec<_>>>()?;
    let server = subject.id()?;
    let (begin, before) = (Instant::now(), cpu(server)?);
    let renewing = tokio::spawn(run_all(renewals));
    let beside = changes(options, subject, &fleet).await?;
    let machines = renewing.await??;
    let renewed = (begin.elapsed(), cpu_since(server, before)?);
    fleet.quiet(PAUSE, options.patience).await?;

    let reports = reports::measure(subject, machines).await?;
    let idle = idle_agent(options, subject).await?;
    let each = |cpu: Duration| cpu.as_secs_f64() * 1e6 / 1000.0;
    let rows = vec![
        Row::new("1,000 machines enroll by token: to the last", "ms", milliseconds(enrolled.0)),
        Row::new("1,000 machines enroll by token: server's CPU each", "us", each(enrolled.1)),
        Row::new("all of them renew: to the last", "ms", milliseconds(renewed.0))
            .itself_at_most(RENEWAL_GOAL),
        Row::new("all of them renew, with 8 changes: server's CPU each", "us", each(renewed.1)),
        Row::new("a change to the last ACK, median", "ms", milliseconds(alone)),
        Row::new(
            "a change to the last ACK while they renew, median",
            "ms",
            milliseconds(median(&beside)),
        ),
        Row::new(
            "a change to the last ACK while they renew, slowest",
            "ms",
            milliseconds(slowest(&beside)),
        ),
    ];
    Ok(rows.into_iter().chain(reports).chain(idle).collect())
}

/// The agent of one more machine.
async fn idle_agent(
    options: &RunOptions,
    subject: &MeasuredControlPlane,
) -> anyhow::Result<Vec<Row>> {
    let created = subject.admin().create_tokens(&tokens(1)?).await?;
    let hash = created.ca_hashes.first().context("no CA hash")?.parse()?;
    let token = created.tokens.first().context("no token")?.token.clone();
    let address = Shape::address(SHAPE.proxies + MACHINES).into();
    let enrollment = subject.enrollment().to_string();
    idle_agent::measure(&options.ironmesh, &enrollment, hash, token.expose(), address).await
}

/// The request for tokens of the first group.
fn tokens(count: usize) -> anyhow::Result<TokenRequest> {
    Ok(TokenRequest {
        services: SHAPE.services_of(0).iter().map(|name| name.parse()).collect::<Result<_, _>>()?,
        labels: Labels::default(),
        locality: Locality::default(),
        known_as: Vec::new(),
        machine: None,
        addresses: None,
        driver: None,
        new_authority: false,
        ttl: 900,
        count,
    })
}

/// Changes an endpoint several times, each after the last ACK of the one before. Returns how long each took.
async fn changes(
    options: &RunOptions,
    subject: &mut MeasuredControlPlane,
    fleet: &Fleet,
) -> anyhow::Result<Vec<Duration>> {
    let (clients, patience) = (fleet.len(), options.patience);
    let scope = Scope { cluster: CHANGING, clients, among: clients, pause: PAUSE, patience };
    let mut times = Vec::new();
    for _ in 0..CHANGES {
        let watch = fleet.watch(CHANGING);
        let before = subject.change()?;
        times.push(arrival(&watch, scope).await?.last_acked - before);
        sleep(PAUSE).await;
    }
    Ok(times)
}

fn slowest(times: &[Duration]) -> Duration {
    times.iter().max().copied().unwrap_or_default()
}

/// A call of a machine.
pub(super) type Call<T> = std::pin::Pin<Box<dyn Future<Output = anyhow::Result<T>> + Send>>;

/// The enrollments of all machines, with keys that are made before.
async fn enroll_all(subject: &MeasuredControlPlane) -> anyhow::Result<Vec<Call<Machine>>> {
    let request = tokens(MACHINES)?;
    let created = subject.admin().create_tokens(&request).await?;
    let hash: CaHash = created.ca_hashes.first().context("no CA hash")?.parse()?;
    let client = EnrollmentClient::new(addresses(subject)?, ServerTrust::Hashes(vec![hash]))?;
    let mut calls = Vec::new();
    for (number, token) in created.tokens.into_iter().enumerate() {
        let (key, request) = generate_proxy_key_and_csr()?;
        let (client, address) = (client.clone(), Shape::address(SHAPE.proxies + number).into());
        let call: Call<Machine> = Box::pin(async move {
            let enrollment = EnrollRequest {
                token: token.token,
                certificate_request: request.clone(),
                address: Some(address),
                name: None,
            };
            let enrolled = client.enroll(&enrollment).await?;
            Ok(machine(key, request, enrolled))
        });
        calls.push(call);
    }
    Ok(calls)
}

/// The renewal of a machine's certificate.
pub(super) fn renew(subject: &MeasuredControlPlane, old: Machine) -> anyhow::Result<Call<Machine>> {
    let client = client(subject, &old)?;
    Ok(Box::pin(async move {
        let request = RenewRequest { certificate_request: old.request.clone() };
        let renewed = client.renew(&old.identity, &request).await?;
        ensure!(renewed.certificate != old.identity.certificate, "the certificate is the same");
        Ok(machine(old.identity.key, old.request, renewed))
    }))
}

/// A client that trusts the mesh of an enrolled machine.
pub(super) fn client(
    subject: &MeasuredControlPlane,
    machine: &Machine,
) -> anyhow::Result<EnrollmentClient> {
    // The settings of the measured control plane do not change the default domain.
    let control_plane = TrustDomain::new(Domain::default()).control_plane().0;
    let bundle = TrustBundle { roots: machine.roots.clone() };
    let trust = ServerTrust::Roots { bundle, control_plane };
    Ok(EnrollmentClient::new(addresses(subject)?, trust)?)
}

fn machine(key: Secret, request: String, enrolled: Enrolled) -> Machine {
    let identity = MachineIdentity { certificate: enrolled.certificate, key };
    Machine { identity, request, roots: enrolled.roots }
}

fn addresses(subject: &MeasuredControlPlane) -> anyhow::Result<Vec<ControlPlaneAddress>> {
    Ok(vec![format!("https://{}", subject.enrollment()).parse()?])
}

/// Makes the calls, and measures time and the server's CPU time.
async fn all_at_once(
    subject: &MeasuredControlPlane,
    calls: Vec<Call<Machine>>,
) -> anyhow::Result<(Vec<Machine>, (Duration, Duration))> {
    let server = subject.id()?;
    let (begin, before) = (Instant::now(), cpu(server)?);
    let machines = run_all(calls).await?;
    Ok((machines, (begin.elapsed(), cpu_since(server, before)?)))
}

/// Makes the calls, a limited number at once. The results are in the order in which they come.
pub(super) async fn run_all<T: Send + 'static>(calls: Vec<Call<T>>) -> anyhow::Result<Vec<T>> {
    let permits = Arc::new(Semaphore::new(AT_ONCE));
    let mut running = JoinSet::new();
    for call in calls {
        let permits = Arc::clone(&permits);
        running.spawn(async move {
            let _permit = permits.acquire_owned().await?;
            call.await
        });
    }
    let mut results = Vec::new();
    while let Some(result) = running.join_next().await {
        results.push(result??);
    }
    Ok(results)
}
