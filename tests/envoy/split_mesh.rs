//! A mesh for tests of splits: services of one account on one sidecar, each with an application,
//! and a buyer who may call all of them.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::Method;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Ledger, Load, Mesh, Programs, ProxyOptions, TcpConnection,
    eventually, get_once,
};

use crate::bookstore::ensure_status;

/// The services: each has the HTTP port 14001, the TCP port 3306, and an application that reports
/// its name.
pub(crate) const SERVICES: [&str; 5] = ["store", "v1", "v2", "v3", "next"];

pub(crate) struct SplitMesh {
    pub(crate) mesh: Mesh,
    pub(crate) buyer: Envoy,
    pub(crate) server: Envoy,
    apps: BTreeMap<&'static str, App>,
    _ledgers: Vec<Ledger>,
}

/// The file `services.toml` with these services.
pub(crate) fn services(names: &[&str]) -> String {
    let mut policy = String::from(
        r#"
[[service]]
name = "buyer"

[[service]]
name = "calls"
service_account = "store"
ports = [{ name = "rpc", port = 14002, protocol = "grpc", target_port = 8070 }]

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[tcp_route]]
name = "all"

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }, { kind = "TCPRoute", name = "all" }]
"#,
    );
    for (name, number) in SERVICES.into_iter().zip(0..).filter(|(name, _)| names.contains(name)) {
        write!(
            policy,
            "[[service]]\nname = \"{name}\"\nservice_account = \"store\"\nports = [\n  \
             {{ name = \"web\", port = 14001, protocol = \"http\", target_port = {} }},\n  \
             {{ name = \"sql\", port = 3306, protocol = \"tcp\", target_port = {} }},\n]\n",
            8080 + number,
            8090 + number
        )
        .unwrap();
    }
    policy
}

/// A split of `service`, for requests that match these of the group `store`, or for all calls.
pub(crate) fn split(name: &str, service: &str, matches: &[&str], to: &[(&str, u32)]) -> String {
    let mut policy = format!("[[traffic_split]]\nname = \"{name}\"\nservice = \"{service}\"\n");
    if !matches.is_empty() {
        let rule = "kind = \"HTTPRouteGroup\", name = \"store\"";
        writeln!(policy, "matches = [{{ {rule}, matches = {matches:?} }}]").unwrap();
    }
    let backends: Vec<_> = to
        .iter()
        .map(|(to, weight)| format!("{{ service = \"{to}\", weight = {weight} }}"))
        .collect();
    writeln!(policy, "backends = [{}]", backends.join(", ")).unwrap();
    policy
}

impl SplitMesh {
    /// Opens the mesh with all services and these splits.
    pub(crate) async fn open(splits: &str) -> Option<Self> {
        let programs = Programs::find()?;
        let policy = [("services.toml", services(&SERVICES)), ("splits.toml", splits.to_owned())];
        let policy = policy.each_ref().map(|(file, text)| (*file, text.as_str()));
        let mesh = Mesh::start(&programs, &policy).await;
        let socket = |port| mesh.loopback().socket(21, port);
        let (mut apps, mut ledgers) = (BTreeMap::new(), Vec::new());
        apps.insert("calls", App::http2("calls", socket(8070)).await);
        let mut server = ProxyOptions::new("default/calls", 21);
        for (name, number) in SERVICES.into_iter().zip(0..) {
            apps.insert(name, App::http1(name, socket(8080 + number)).await);
            ledgers.push(Ledger::start(name, socket(8090 + number)).await);
            server = server.with_service(&format!("default/{name}"));
        }
        let server = mesh.envoy(&server).await;
        // Only tests that start a DNS server there use it.
        let names = mesh.loopback().socket(2, 5353);
        let buyer = ProxyOptions::new("default/buyer", 11)
            .name_server(names)
            .upstream("default/store:14001=14001")
            .upstream("default/store:3306=3306")
            .upstream("default/calls=14002")
            .upstream("default/v1:3306=3307")
            .upstream("outside.example:5432=15432");
        let buyer = mesh.envoy(&buyer).await;
        let setup = Self { mesh, buyer, server, apps, _ledgers: ledgers };
        eventually("the buyer to be served", async || {
            ensure_status(&get_once(setup.buyer.socket(14001), "/", &[]).await?, 200)
        })
        .await;
        Some(setup)
    }

    /// The application of a service.
    pub(crate) fn app(&self, service: &str) -> &App {
        self.apps.get(service).unwrap()
    }

    /// A kept connection of the buyer to the store.
    pub(crate) async fn connection(&self) -> Http1Connection {
        Http1Connection::connect(self.buyer.socket(14001)).await.unwrap()
    }

    /// Starts load on the store, with a long stream and a long connection.
    pub(crate) async fn load(&self) -> Load {
        let mut load = None;
        eventually("the load to begin", async || {
            let started = Load::start(self.buyer.socket(14001), "store", "/");
            let started = started.with_stream(self.buyer.socket(14002), "calls").await?;
            load = Some(started.with_connection(self.buyer.socket(3307)).await?);
            anyhow::Ok(())
        })
        .await;
        load.unwrap()
    }

    /// The number of `count` requests with these headers that each application answers.
    pub(crate) async fn answers(&self, count: u32, headers: &[(&str, &str)]) -> Shares {
        let mut connection = self.connection().await;
        let headers = [&[("host", "store")], headers].concat();
        let mut shares = Shares::default();
        for _ in 0..count {
            let response = connection.request(Method::GET, "/", &headers).await.unwrap();
            ensure_status(&response, 200).unwrap();
            shares.add(response.header("x-app").unwrap());
        }
        shares
    }

    /// The number of connections to the store that each application greets.
    pub(crate) async fn greetings(&self, count: u32) -> Shares {
        let mut shares = Shares::default();
        for _ in 0..count {
            let mut connection = TcpConnection::connect(self.buyer.socket(3306)).await.unwrap();
            shares.add(&connection.line().await.unwrap());
        }
        shares
    }

    /// Waits until exactly these applications answer twenty requests.
    pub(crate) async fn wait_for(&self, wanted: &[&str]) {
        eventually(&format!("{wanted:?} to answer"), async || {
            let answers = self.answers(20, &[]).await;
            let names: Vec<_> = answers.0.keys().map(String::as_str).collect();
            anyhow::ensure!(names == wanted, "{answers:?}");
            Ok(())
        })
        .await;
    }

    /// Checks that no request failed or was retried, and that no Envoy NACKed an update.
    #[expect(clippy::print_stderr, reason = "the figures belong to the test's report")]
    pub(crate) async fn assert_no_failures(&self, load: Load) {
        let report = load.finish().await;
        let retries = self.buyer.sum(r"^cluster\..*\.upstream_rq_retry$").await;
        eprintln!(
            "{} requests, {} messages, {} lines; retries: {retries}",
            report.requests, report.stream_messages, report.connection_lines
        );
        assert_eq!(retries, 0);
        report.assert_undisturbed();
        assert!(report.stream_messages > 0 && report.connection_lines > 0, "{report:?}");
        self.assert_no_update_errors().await;
    }

    pub(crate) async fn assert_no_update_errors(&self) {
        self.buyer.assert_no_update_errors().await;
        self.server.assert_no_update_errors().await;
    }
}

/// Counts by application.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct Shares(pub(crate) BTreeMap<String, u32>);

impl Shares {
    fn add(&mut self, name: &str) {
        *self.0.entry(name.to_owned()).or_default() += 1;
    }

    /// Fails unless exactly these applications have about these shares: within six standard
    /// deviations of a binomial distribution, which chance misses once in 500 million runs.
    pub(crate) fn assert_about(&self, parts: &[(&str, f64)]) {
        let count: f64 = self.0.values().copied().map(f64::from).sum();
        let names: Vec<_> = parts.iter().map(|(name, _)| *name).collect();
        assert_eq!(self.0.keys().map(String::as_str).collect::<Vec<_>>(), names, "{self:?}");
        for ((name, had), (_, part)) in self.0.iter().zip(parts) {
            let (had, expected) = (f64::from(*had), count * part);
            let deviation = (expected * (1.0 - part)).sqrt();
            assert!(
                (had - expected).abs() <= 6.0 * deviation,
                "{name}: {expected} expected of {self:?}"
            );
        }
    }
}
