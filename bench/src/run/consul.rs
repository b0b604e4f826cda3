//! Measurements with a real Consul: the time to read its catalog, the cost of following it, and the time from a change in
//! Consul to the first call of a real Envoy that it affects. The floor is Consul's answer to the generator in the same run.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::RunOptions;
use super::traffic::{APPLICATION, CallResponse, Caller, UPSTREAM, answer_all, start};
use crate::consul::{Catalog, Consul, PORT};
use crate::fleet::Fleet;
use crate::measure::{Scope, arrival, median};
use crate::measured_control_plane::MeasuredControlPlane;
use crate::process::{allow_connections, cpu, cpu_since, rss};
use crate::report::{Row, count, milliseconds};

/// The most real instances that a buyer calls. The check of the first always passes, those of the others pass
/// alternately. They are many because an instance that flaps three times within a minute gets no calls.
const REAL: usize = 101;
const OFTEN: usize = 2;
/// The pause before a change, which is longer than the debounce.
const QUIET: Duration = Duration::from_millis(500);
/// How long Consul's answers are counted if its queries share few connections.
const QUEUED_TIME: Duration = Duration::from_secs(10);
/// The number of equal answers in a row that prove that only one instance gets calls.
const IN_A_ROW: usize = 4;
/// The limit of the CPU of one report, with its push to the few proxies of this part, in milliseconds.
const REPORT_GOAL: f64 = 1.0;
/// The limit of the time to a real Envoy, relative to Consul's answer.
const FLAP_GOAL: f64 = 1.5;

/// A Consul, and a control plane that queries it.
struct Scene<'a> {
    options: &'a RunOptions,
    subject: MeasuredControlPlane,
    consul: Arc<Consul>,
}

pub(super) async fn measure(options: &RunOptions) -> anyhow::Result<Vec<Row>> {
    let catalog = options.catalog;
    // The limit for the generator, which the control plane and Consul inherit: one connection per query. Consul keeps
    // the connections of a killed control plane until its blocking queries end, and two are killed.
    let connections = 4 * catalog.services + 200;
    allow_connections(u64::try_from(connections)?)?;
    let mut subject = MeasuredControlPlane::prepare(&options.ironmesh)?;
    subject.swap("policy.toml", &policy(catalog.services)?)?;
    let folder = subject.folder().join("consul");
    fs_err::create_dir(&folder)?;
    let host = subject.beside(1);
    let consul =
        Consul::start(&options.consul, &folder, host, connections, options.patience).await?;
    let real: Vec<_> = (0..REAL).map(|number| application(&subject, number)).collect();
    let instance = |service: usize, number: usize| match real.get(number) {
        Some(address) if service == 0 => (*address, number == 0),
        _ => (elsewhere(service * catalog.instances + number), service > 0),
    };
    consul.fill(catalog, instance).await.context("cannot fill Consul")?;
    let mut scene = Scene { options, subject, consul: Arc::new(consul) };
    let mut rows = Vec::new();
    let measured = scene.measure(&mut rows).await;
    measured.with_context(|| {
        format!("the control plane's log ends with\n{}", scene.subject.log_tail())
    })?;
    Ok(rows)
}

impl Scene<'_> {
    async fn measure(&mut self, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let catalog = self.options.catalog;
        // One connection per query, and some more.
        let max_connections = catalog.services + 10;
        let agents = format!("[consul]\nagents = [\"{}\"]\n", self.consul.url());
        self.subject.configure(&format!("{agents}max_connections = {max_connections}\n"))?;
        self.cold(rows).await?;
        let idle = self.steady(rows, self.options.steady, &STEADY).await?;
        let fleet = self.callers(rows).await?;
        if self.options.envoy.exists() {
            let mut buyer = self.buyer().await?;
            self.flaps(rows, &fleet, &mut buyer, idle).await?;
        }
        fleet.disconnect();
        self.subject.kill().await?;
        let begin = Instant::now();
        self.subject.run().await?;
        let again = milliseconds(begin.elapsed());
        rows.push(Row::new("SIGKILL, restart: until it is ready with all of it", "ms", again));
        self.subject.kill().await?;
        self.subject.configure(&agents)?;
        self.subject.run().await?;
        self.steady(rows, QUEUED_TIME.min(self.options.steady), &QUEUED).await.map(drop)
    }

    /// Measures the first start, without kept state.
    async fn cold(&mut self, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let services = self.options.catalog.services;
        let begin = Instant::now();
        let bytes = self.consul.query_all(services).await?;
        let alone = begin.elapsed();
        let of_consul = cpu(self.consul.id()?)?;
        let begin = Instant::now();
        self.subject.run().await?;
        let cold = begin.elapsed();
        let own = cpu(self.subject.id()?)?;
        let of_consul = cpu_since(self.consul.id()?, of_consul)?;
        let work = "first start until ready with all of it; Consul's answers alone";
        rows.push(Row::new(work, "ms", milliseconds(cold)).floor(Some(milliseconds(alone))));
        let work = "the same: CPU; that of Consul meanwhile";
        rows.push(Row::new(work, "ms", milliseconds(own)).floor(Some(milliseconds(of_consul))));
        rows.push(Row::new("the same: read from Consul", "MB", count(bytes) / 1e6));
        Ok(())
    }

    /// Measures the idle load, without changes. Returns the control plane's share of a core.
    async fn steady(
        &self,
        rows: &mut Vec<Row>,
        time: Duration,
        labels: &[&'static str; 3],
    ) -> anyhow::Result<f64> {
        // Wait for the start to finish.
        sleep(QUIET).await;
        let (server, consul) = (self.subject.id()?, self.consul.id()?);
        let (own, of_consul) = (cpu(server)?, cpu(consul)?);
        let (answered, begin) = (self.consul.answered().await?, Instant::now());
        sleep(time).await;
        let answered = self.consul.answered().await? - answered;
        let time = begin.elapsed().as_secs_f64();
        let (own, of_consul) = (cpu_since(server, own)?, cpu_since(consul, of_consul)?);
        let [requests, work, memory] = *labels;
        rows.push(Row::new(requests, "/s", count(answered) / time));
        let share = |cpu: Duration| cpu.as_secs_f64() * 100.0 / time;
        rows.push(Row::new(work, "% of a core", share(own)).floor(Some(share(of_consul))));
        rows.push(Row::new(memory, "MB", count(rss(server)?) / 1e6));
        Ok(own.as_secs_f64() / time)
    }

    /// Connects simulated Envoys that may call all services.
    async fn callers(&self, rows: &mut Vec<Row>) -> anyhow::Result<Fleet> {
        let catalog = self.options.catalog;
        let identities = self.subject.enroll_group(0, &["caller".to_owned()]).await?;
        let fleet = Fleet::new(identities, self.options.variant, self.options.delay);
        let begin = Instant::now();
        fleet.connect(self.subject.xds(), true);
        let end = fleet.all_configured(self.options.patience).await?;
        let work = "ten simulated Envoys of all services connect: to the last configured";
        rows.push(Row::new(work, "ms", milliseconds(end - begin)));
        fleet.quiet(QUIET, self.options.patience).await?;
        let known = (catalog.services * catalog.instances) as u64;
        let deadline = Instant::now() + self.options.patience;
        let has = loop {
            let has = (0..fleet.len()).map(|client| fleet.endpoints(client)).min().unwrap_or(0);
            if has == known {
                break has;
            }
            let is_time = Instant::now() < deadline;
            ensure!(is_time, "a caller has {has} endpoints, Consul has {known}");
            sleep(Duration::from_millis(20)).await;
        };
        rows.push(Row::new(
            "endpoints of Consul that each of them received",
            "endpoints",
            count(has),
        ));
        Ok(fleet)
    }

    /// Starts a real Envoy that may call only the service with the real instances.
    async fn buyer(&self) -> anyhow::Result<Buyer> {
        let mut applications = JoinSet::new();
        for number in 0..REAL.min(self.options.catalog.instances) {
            let address = application(&self.subject, number);
            let listener = TcpListener::bind((address, APPLICATION)).await?;
            applications.spawn(answer_all(listener, number.to_string()));
        }
        let (folder, address) = (self.subject.folder().join("buyer"), self.subject.beside(2));
        let upstream = format!("default/{}={UPSTREAM}", Catalog::service(0));
        let host = address.to_string();
        let arguments = ["--service", "edge/buyer", "--address", &host, "--upstream", &upstream];
        self.subject.bootstrap(&arguments, &folder).await?;
        let envoy = start(&self.options.envoy, &folder)?;
        let mut caller = Caller::new(SocketAddr::from((address, UPSTREAM)), "service-0000");
        let begun = caller.until("the first", self.options.patience, |one| one.body == "0").await;
        begun.context("the real Envoy reaches no instance")?;
        Ok(Buyer { _applications: applications, _envoy: envoy, caller })
    }

    /// Lets the check of each instance pass and fail in sequence.
    async fn flaps(
        &self,
        rows: &mut Vec<Row>,
        fleet: &Fleet,
        buyer: &mut Buyer,
        idle: f64,
    ) -> anyhow::Result<()> {
        let others = REAL.min(self.options.catalog.instances) - 1;
        ensure!(
            self.options.events <= others * OFTEN,
            "{} instances are too few for {} events: they would flap",
            others + 1,
            self.options.events
        );
        let (mut comes, mut goes) = (Times::default(), Times::default());
        let server = self.subject.id()?;
        let (begin, cpu_before) = (Instant::now(), cpu(server)?);
        for round in 0..self.options.events {
            let number = 1 + round % others;
            self.flap(&mut comes, fleet, (number, true), &mut buyer.caller).await?;
            self.flap(&mut goes, fleet, (number, false), &mut buyer.caller).await?;
        }
        let used = milliseconds(cpu_since(server, cpu_before)?);
        let own = (used - milliseconds(begin.elapsed()) * idle).max(0.0);
        let reports = count(u64::try_from(2 * self.options.events)?);
        let work = "one provider report: CPU of the change itself, beyond the idle CPU";
        rows.push(Row::new(work, "ms", own / reports).itself_at_most(REPORT_GOAL));
        let row = |work, times: &[Duration], watch: &[Duration]| {
            let [ours, watch] = [times, watch].map(|times| milliseconds(median(times)));
            Row::new(work, "ms", ours).floor(Some(watch)).at_most(FLAP_GOAL)
        };
        rows.push(row(
            "a check passes: to the first answer by that instance, median",
            &comes.called,
            &comes.watched,
        ));
        let [acked, watch] =
            [&comes.acked, &comes.watched].map(|times| milliseconds(median(times)));
        let work = "the same: to the last ACK of ten simulated Envoys";
        rows.push(Row::new(work, "ms", acked).floor(Some(watch)));
        rows.push(row(
            "a check fails: to the first call of a different instance, median",
            &goes.called,
            &goes.watched,
        ));
        Ok(())
    }

    /// Sets the check of an instance, and measures its effects.
    async fn flap(
        &self,
        times: &mut Times,
        fleet: &Fleet,
        (number, passes): (usize, bool),
        caller: &mut Caller,
    ) -> anyhow::Result<()> {
        let patience = self.options.patience;
        let (catalog, service) = (self.options.catalog, Catalog::service(0));
        let index = self.consul.query(&service, None).await?.index;
        let consul = Arc::clone(&self.consul);
        let watching = tokio::spawn(async move { consul.query(&service, Some(index)).await });
        let cluster = format!("default/{}|80", Catalog::service(0));
        let watch = fleet.watch(&cluster);
        sleep(QUIET).await;
        let begin = Instant::now();
        self.consul.set(catalog, 0, number, passes).await?;
        let called = if passes {
            let body = number.to_string();
            caller.until("the added instance", patience, |answer| answer.body == body).await?
        } else {
            let mut alone = Vec::new();
            let is_alone = |answer: &CallResponse| {
                if answer.body != "0" {
                    alone.clear();
                }
                alone.push(Instant::now());
                answer.body == "0" && alone.len() >= IN_A_ROW
            };
            caller.until("the end of calls to the removed instance", patience, is_alone).await?;
            // Instances alternate, so the first of these answers was no proof.
            alone.get(1).copied().context("too few answers")?
        };
        let scope = Scope {
            cluster: &cluster,
            clients: fleet.len(),
            among: fleet.len(),
            pause: Duration::ZERO,
            patience,
        };
        times.acked.push(arrival(&watch, scope).await?.last_acked - begin);
        times.watched.push(watching.await??.at - begin);
        times.called.push(called - begin);
        Ok(())
    }
}

/// A real Envoy, its applications, and the client that calls through it.
struct Buyer {
    _applications: JoinSet<anyhow::Result<()>>,
    _envoy: tokio::process::Child,
    caller: Caller,
}

/// Times since a change in Consul.
#[derive(Debug, Default)]
struct Times {
    /// To the first request that the change affects.
    called: Vec<Duration>,
    /// To the last ACK of the simulated Envoys.
    acked: Vec<Duration>,
    /// To Consul's answer to a blocking query of the generator.
    watched: Vec<Duration>,
}

/// The policy for the services in Consul. No instance has a proxy, so all services are permissive. The buyer is in a
/// different namespace, so only the first service is visible to it.
fn policy(services: usize) -> anyhow::Result<String> {
    let mut text = "[[service]]\nname = \"caller\"\n\n\
                    [[service]]\nname = \"buyer\"\nnamespace = \"edge\"\n\n"
        .to_owned();
    for number in 0..services {
        let name = Catalog::service(number);
        let visibility = if number == 0 { "public" } else { "private" };
        write!(
            text,
            "[[service]]\nname = \"{name}\"\nservice_account = \"team-{:02}\"\n\
             mode = \"permissive\"\nvisibility = \"{visibility}\"\n\
             ports = [{{ name = \"web\", port = 80, protocol = \"http\", target_port = {PORT} }}]\n\
             endpoints = {{ consul = {{}} }}\n\n",
            number % ACCOUNTS
        )?;
    }
    Ok(text)
}

/// The address of a real instance.
fn application(subject: &MeasuredControlPlane, number: usize) -> Ipv4Addr {
    subject.beside(u8::try_from(10 + number).unwrap_or(u8::MAX))
}

/// An address that gets no calls.
fn elsewhere(number: usize) -> Ipv4Addr {
    let first = u32::from(Ipv4Addr::new(10, 0, 0, 1));
    (first + u32::try_from(number).unwrap_or(0)).into()
}

const ACCOUNTS: usize = 50;
const STEADY: [&str; 3] = [
    "idle: Consul's answers",
    "the same: CPU; that of Consul",
    "the same: memory of the control plane",
];
const QUEUED: [&str; 3] = [
    "idle with the default `max_connections`: Consul's answers",
    "idle with the default `max_connections`: CPU; that of Consul",
    "idle with the default `max_connections`: memory",
];
