//! With a real Consul: until all that it knows is known, what following it costs, and how long after a
//! change in it a real Envoy calls otherwise. The floor is Consul itself, as it answers us in the same run.

use std::fmt::Write as _;
use std::net::{Ipv4Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use anyhow::{Context, ensure};
use tokio::net::TcpListener;
use tokio::task::JoinSet;
use tokio::time::{Instant, sleep};

use super::Options;
use super::traffic::{APPLICATION, Answer, Caller, UPSTREAM, answer_all, start};
use crate::consul::{Catalog, Consul, PORT};
use crate::fleet::Fleet;
use crate::measure::{Scope, arrival, median};
use crate::process::{allow_connections, cpu, cpu_since, rss};
use crate::report::{Row, count, milliseconds};
use crate::subject::Subject;

/// Real instances at most, which a buyer calls: the first always passes its check, the others pass it by
/// turns. They are many because who comes and goes three times within a minute gets no calls.
const REAL: usize = 101;
const OFTEN: usize = 2;
/// How long all is left alone before a change: longer than a burst settles.
const QUIET: Duration = Duration::from_millis(500);
/// How long Consul's answers are counted where queries take turns.
const TURNS: Duration = Duration::from_secs(10);
/// So many answers in a row by the same one are by the only one.
const IN_A_ROW: usize = 4;

/// A Consul, and a control plane that asks it.
struct Scene<'a> {
    options: &'a Options,
    subject: Subject,
    consul: Arc<Consul>,
}

pub(super) async fn measure(options: &Options) -> anyhow::Result<Vec<Row>> {
    let catalog = options.catalog;
    // Ours to Consul, and what the control plane and Consul inherit: a connection for each question.
    let connections = 2 * catalog.services + 200;
    allow_connections(u64::try_from(connections)?)?;
    let mut subject = Subject::prepare(&options.ironmesh)?;
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
        // One for each question, and some to look around.
        let room = catalog.services + 10;
        let agents = format!("[consul]\nagents = [\"{}\"]\n", self.consul.url());
        self.subject.configure(&format!("{agents}max_connections = {room}\n"))?;
        self.cold(rows).await?;
        self.steady(rows, self.options.steady, &STEADY).await?;
        let fleet = self.callers(rows).await?;
        if self.options.envoy.exists() {
            let mut buyer = self.buyer().await?;
            self.flaps(rows, &fleet, &mut buyer).await?;
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
        self.steady(rows, TURNS.min(self.options.steady), &BY_TURNS).await
    }

    /// The first start, of which nothing was kept.
    async fn cold(&mut self, rows: &mut Vec<Row>) -> anyhow::Result<()> {
        let services = self.options.catalog.services;
        let begin = Instant::now();
        let bytes = self.consul.ask_all(services).await?;
        let alone = begin.elapsed();
        let of_consul = cpu(self.consul.id()?)?;
        let begin = Instant::now();
        self.subject.run().await?;
        let cold = begin.elapsed();
        let own = cpu(self.subject.id()?)?;
        let of_consul = cpu_since(self.consul.id()?, of_consul)?;
        let work = "from the first start until it is ready with all of it; Consul's answers alone";
        rows.push(Row::new(work, "ms", milliseconds(cold)).floor(Some(milliseconds(alone))));
        let work = "the same: CPU; that of Consul meanwhile";
        rows.push(Row::new(work, "ms", milliseconds(own)).floor(Some(milliseconds(of_consul))));
        rows.push(Row::new("the same: read from Consul", "MB", count(bytes) / 1e6));
        Ok(())
    }

    /// Nothing happens, and Consul is asked nevertheless.
    async fn steady(
        &self,
        rows: &mut Vec<Row>,
        time: Duration,
        words: &[&'static str; 3],
    ) -> anyhow::Result<()> {
        // What begins is over.
        sleep(QUIET).await;
        let (server, consul) = (self.subject.id()?, self.consul.id()?);
        let (own, of_consul) = (cpu(server)?, cpu(consul)?);
        let (answered, begin) = (self.consul.answered().await?, Instant::now());
        sleep(time).await;
        let answered = self.consul.answered().await? - answered;
        let time = begin.elapsed().as_secs_f64();
        let (own, of_consul) = (cpu_since(server, own)?, cpu_since(consul, of_consul)?);
        let [requests, work, memory] = *words;
        rows.push(Row::new(requests, "/s", count(answered) / time));
        let share = |cpu: Duration| cpu.as_secs_f64() * 100.0 / time;
        rows.push(Row::new(work, "% of a core", share(own)).floor(Some(share(of_consul))));
        rows.push(Row::new(memory, "MB", count(rss(server)?) / 1e6));
        Ok(())
    }

    /// Simulated Envoys that may call all services.
    async fn callers(&self, rows: &mut Vec<Row>) -> anyhow::Result<Fleet> {
        let catalog = self.options.catalog;
        let identities = self.subject.join_group(0, &["caller".to_owned()]).await?;
        let fleet = Fleet::new(identities, self.options.variant, self.options.delay);
        let begin = Instant::now();
        fleet.connect(self.subject.xds(), true);
        let end = fleet.all_configured(self.options.patience).await?;
        let work = "ten simulated Envoys connect that may call all: to the last configured";
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
            ensure!(is_time, "a caller has {has} endpoints, and Consul knows {known}");
            sleep(Duration::from_millis(20)).await;
        };
        rows.push(Row::new("endpoints of Consul that each of them has", "endpoints", count(has)));
        Ok(fleet)
    }

    /// A real Envoy that may call the service of the real instances, and no other.
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
        begun.context("the real Envoy calls nobody")?;
        Ok(Buyer { _applications: applications, _envoy: envoy, caller })
    }

    /// One instance after the other passes its check, and fails it.
    async fn flaps(
        &self,
        rows: &mut Vec<Row>,
        fleet: &Fleet,
        buyer: &mut Buyer,
    ) -> anyhow::Result<()> {
        let others = REAL.min(self.options.catalog.instances) - 1;
        ensure!(
            self.options.events <= others * OFTEN,
            "{} instances are too few for {} events: they would flap",
            others + 1,
            self.options.events
        );
        let (mut comes, mut goes) = (Times::default(), Times::default());
        for round in 0..self.options.events {
            let number = 1 + round % others;
            self.flap(&mut comes, fleet, (number, true), &mut buyer.caller).await?;
            self.flap(&mut goes, fleet, (number, false), &mut buyer.caller).await?;
        }
        let row = |work, times: &[Duration], watch: &[Duration]| {
            let [ours, watch] = [times, watch].map(|times| milliseconds(median(times)));
            Row::new(work, "ms", ours).floor(Some(watch))
        };
        rows.push(row(
            "a check passes: to the first answer by that instance, median",
            &comes.called,
            &comes.watched,
        ));
        rows.push(row(
            "the same: to the last of ten simulated Envoys that know all",
            &comes.told,
            &comes.watched,
        ));
        rows.push(row(
            "a check fails: to the first call that is another's, median",
            &goes.called,
            &goes.watched,
        ));
        Ok(())
    }

    /// Says of an instance whether it passes its check.
    async fn flap(
        &self,
        times: &mut Times,
        fleet: &Fleet,
        (number, passes): (usize, bool),
        caller: &mut Caller,
    ) -> anyhow::Result<()> {
        let patience = self.options.patience;
        let (catalog, service) = (self.options.catalog, Catalog::service(0));
        let index = self.consul.ask(&service, None).await?.index;
        let consul = Arc::clone(&self.consul);
        let watching = tokio::spawn(async move { consul.ask(&service, Some(index)).await });
        let cluster = format!("default/{}|80", Catalog::service(0));
        let told = fleet.watch(&cluster);
        sleep(QUIET).await;
        let begin = Instant::now();
        self.consul.set(catalog, 0, number, passes).await?;
        let called = if passes {
            let body = number.to_string();
            caller.until("the one that came", patience, |answer| answer.body == body).await?
        } else {
            let mut alone = Vec::new();
            let is_alone = |answer: &Answer| {
                if answer.body != "0" {
                    alone.clear();
                }
                alone.push(Instant::now());
                answer.body == "0" && alone.len() >= IN_A_ROW
            };
            caller.until("the one that went to be gone", patience, is_alone).await?;
            // They took turns, so the first of these was so before.
            alone.get(1).copied().context("too few answers")?
        };
        let scope = Scope {
            cluster: &cluster,
            clients: fleet.len(),
            among: fleet.len(),
            pause: Duration::ZERO,
            patience,
        };
        times.told.push(arrival(&told, scope).await?.last_acked - begin);
        times.watched.push(watching.await??.at - begin);
        times.called.push(called - begin);
        Ok(())
    }
}

/// A real Envoy, what it calls, and who calls through it.
struct Buyer {
    _applications: JoinSet<anyhow::Result<()>>,
    _envoy: tokio::process::Child,
    caller: Caller,
}

/// From a change in Consul on.
#[derive(Debug, Default)]
struct Times {
    /// To the first request that goes otherwise.
    called: Vec<Duration>,
    /// To the last simulated Envoy that has taken it.
    told: Vec<Duration>,
    /// To Consul's answer to a query of ours that waited for it.
    watched: Vec<Duration>,
}

/// Services that Consul knows. Proxies are before none of the instances, so all are permissive; and the
/// buyer, who is of another namespace, knows of the first alone.
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

/// Where a real instance is.
fn application(subject: &Subject, number: usize) -> Ipv4Addr {
    subject.beside(u8::try_from(10 + number).unwrap_or(u8::MAX))
}

/// An address that nobody calls.
fn elsewhere(number: usize) -> Ipv4Addr {
    let first = u32::from(Ipv4Addr::new(10, 0, 0, 1));
    (first + u32::try_from(number).unwrap_or(0)).into()
}

const ACCOUNTS: usize = 50;
const STEADY: [&str; 3] = [
    "nothing happens: Consul's answers",
    "the same: CPU; that of Consul",
    "the same: memory of the control plane",
];
const BY_TURNS: [&str; 3] = [
    "nothing happens, `max_connections` as by default: Consul's answers",
    "the same with turns: CPU; that of Consul",
    "the same with turns: memory",
];
