//! Combinations of HTTP settings: each pair on real Envoys, at every level, under load.
//!
//! A model of the reference predicts the outcome of each request, and the test compares it with the
//! real one.

mod http_settings;
mod model;
mod services;
mod upstream;

use std::collections::BTreeMap;
use std::sync::Mutex;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, StatusCode};
use ironmesh_tests::{
    App, Envoy, Http1Connection, Load, LongConnections, Mesh, Programs, ProxyOptions, eventually,
    get_once, request_name,
};
use model::Setting::{self, Abort, Redirect};
use model::{CALLER_RETRIES, LEVELS, Level, Outcome, Times, load_status, model, times};
use serde_json::Value;
use services::{near_policy, service_policy, services};

use crate::bookstore::ensure_status;

struct CompositionMesh {
    mesh: Mesh,
    buyer: Envoy,
    server: Envoy,
    store: App,
    next: App,
    /// The mirror targets, by service.
    shadows: BTreeMap<String, App>,
    long_connections: LongConnections,
    /// The number of retries before the test, and of named requests since.
    retries_before: u64,
    named_retries: AtomicU64,
    checked: Mutex<Checked>,
}

/// The checks whose outcome matched the model.
#[derive(Default)]
struct Checked {
    /// The expected times of active settings, by host and path.
    times: Vec<(String, String, Times)>,
    /// The number of requests delayed by the model, and the buyer's counter before them.
    delayed: u64,
    delayed_before: u64,
    /// The expected copies: the request's name, its description and the counts.
    copies: Vec<(String, String, BTreeMap<String, u64>)>,
}

/// The counter of the listener by `Host`, without that of the load.
const DELAYS: &str = r"^http\.outbound\.fault\.delays_injected$";

impl CompositionMesh {
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let mesh = Mesh::start(&programs, &[("services.toml", &service_policy())]).await;
        let app = async |name: &str, port| App::http1(name, mesh.loopback().socket(21, port)).await;
        let (store, next) = (app("store", 8080).await, app("next", 8081).await);
        let mut shadows = BTreeMap::new();
        for (port, level) in (8082..).zip(LEVELS) {
            shadows.insert(level.shadow(), app(&level.shadow(), port).await);
        }
        let long_connections =
            LongConnections::start(|port| mesh.loopback().socket(21, port)).await;
        let names = services().into_iter().flat_map(|(namespace, services)| {
            services.into_iter().map(move |service| (namespace.clone(), service))
        });
        let names: Vec<_> = names.collect();
        let server =
            names.iter().fold(ProxyOptions::new("default/store", 21), |server, name| {
                match format!("{}/{}", name.0, name.1) {
                    first if first == "default/store" => server,
                    other => server.with_service(&other),
                }
            });
        let server = mesh.envoy(&LongConnections::with_services(server)).await;
        let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
        let buyer = mesh.envoy(&LongConnections::with_upstreams(buyer)).await;
        for (namespace, service) in &names {
            let host = format!("{service}.{namespace}:14001");
            eventually(&format!("{host} to answer"), async || {
                ensure_status(&get_once(buyer.socket(15080), "/", &[("host", &host)]).await?, 200)
            })
            .await;
        }
        long_connections.wait_for(&buyer).await;
        mesh.write_policy("near.toml", &near_policy());
        let retries_before = retries_of(&buyer).await;
        Some(Self {
            mesh,
            buyer,
            server,
            store,
            next,
            shadows,
            long_connections,
            retries_before,
            named_retries: AtomicU64::new(0),
            checked: Mutex::default(),
        })
    }

    /// The number of copies that each mirror target received of a request.
    fn copies(&self, name: &str) -> BTreeMap<String, u64> {
        let copies =
            self.shadows.iter().map(|(shadow, app)| (shadow.clone(), app.requests_named(name)));
        copies.filter(|(_, count)| *count > 0).collect()
    }

    /// Sends a request that every application answers with 503 and whose caller asks for retries.
    /// Returns its name and outcome.
    async fn request_secret(&self, host: &str, path: &str) -> anyhow::Result<(String, Outcome)> {
        let name = request_name();
        let mut connection = Http1Connection::connect(self.buyer.socket(15080)).await?;
        let caller_retries = CALLER_RETRIES.to_string();
        let headers = [
            ("host", host),
            ("x-request-name", &name),
            ("x-answer", "503"),
            ("x-envoy-retry-on", "5xx"),
            ("x-envoy-max-retries", &caller_retries),
        ];
        let response = connection.request(Method::GET, path, &headers).await?;
        let app = response.header("x-app").map(str::to_owned);
        let seen = app.is_some().then(|| response.json());
        let text = |value: &Value| value.as_str().map(str::to_owned);
        let tries = self.store.requests_named(&name) + self.next.requests_named(&name);
        self.named_retries.fetch_add(tries.saturating_sub(1), Ordering::Relaxed);
        let outcome = Outcome {
            status: response.status.as_u16(),
            path: seen.as_ref().and_then(|seen| text(&seen["path"])),
            request_header: seen
                .as_ref()
                .and_then(|seen| text(seen.pointer("/headers/x-sent-level")?)),
            response_header: response.header("x-returned-level").map(str::to_owned),
            location: response.header("location").map(str::to_owned),
            app,
            tries,
            copies: self.copies(&name),
        };
        Ok((name, outcome))
    }

    /// Repeats such a request until the outcome matches the model. Returns the number of requests
    /// sent.
    async fn wait_for_outcome(
        &self,
        host: &str,
        path: &str,
        expected: &Outcome,
        what: &str,
    ) -> u64 {
        let mut requests = Vec::new();
        let name = eventually(what, async || {
            // Envoy does not wait for copies, so that of an earlier request may have arrived
            // meanwhile.
            requests.push(self.request_secret(&format!("{host}:14001"), path).await?);
            let found = requests.iter_mut().find_map(|(name, outcome)| {
                outcome.copies = self.copies(name);
                (outcome == expected).then(|| name.clone())
            });
            found.ok_or_else(|| {
                anyhow::anyhow!("{:?} instead of {expected:?}", requests.last().map(|(_, one)| one))
            })
        })
        .await;
        let mut checked = self.checked.lock().unwrap();
        checked.copies.push((name, what.to_owned(), expected.copies.clone()));
        u64::try_from(requests.len()).unwrap()
    }

    /// Checks a request against the model of these settings.
    async fn check(&self, host: &str, path: &str, settings: &[(Level, Setting)]) {
        let (what, times) = (format!("{host}{path}: {settings:?}"), times(settings));
        let requests = self.wait_for_outcome(host, path, &model(path, settings), &what).await;
        let mut checked = self.checked.lock().unwrap();
        checked.delayed += if times.delay.is_some() { requests } else { 0 };
        checked.times.push((host.to_owned(), path.to_owned(), times));
    }

    /// Waits until the buyer's Envoy has the expected times of all requests checked since the last
    /// call.
    async fn wait_for_times(&self) {
        let expected = std::mem::take(&mut self.checked.lock().unwrap().times);
        eventually("the times", async || {
            let dump = self.buyer.admin_get("/config_dump?resource=dynamic_route_configs").await;
            let dump = dump.json();
            for (host, path, expected) in &expected {
                let times = times_in(&dump, &format!("{host}:14001"), path);
                anyhow::ensure!(
                    times.as_ref() == Some(expected),
                    "{host}{path}: {times:?} instead of {expected:?}"
                );
            }
            anyhow::Ok(())
        })
        .await;
    }

    /// Waits until the last edit is active, which this host shows by outcomes or times.
    async fn wait_for_change(&self, host: &str, settings: &[(Level, Setting)]) {
        self.check(host, "/none", settings).await;
        self.wait_for_times().await;
        let delayed_before = self.buyer.sum(DELAYS).await;
        let mut checked = self.checked.lock().unwrap();
        (checked.delayed, checked.delayed_before) = (0, delayed_before);
    }

    /// Checks the times of all requests since the last edit, and that exactly the expected ones
    /// were delayed.
    async fn check_times(&self) {
        self.wait_for_times().await;
        let delayed = self.buyer.sum(DELAYS).await;
        let checked = self.checked.lock().unwrap();
        assert_eq!(delayed - checked.delayed_before, checked.delayed);
    }

    /// The number of load requests that reached an application.
    fn unnamed_requests(&self) -> u64 {
        self.store.unnamed_requests() + self.next.unnamed_requests()
    }

    /// Starts load to which the settings of the mesh and the namespace apply as well.
    async fn load(&self) -> Load {
        let load = Load::start(self.buyer.socket(14001), "store", "/load");
        self.long_connections.join(load, &self.buyer).await
    }

    /// Checks the load: each request got one answer that its settings allow, and reached the
    /// application once unless a sidecar answered it. No other request was retried, and no copy was
    /// lost.
    #[expect(clippy::print_stderr, reason = "the figures belong to the test's report")]
    async fn assert_no_failures(&self, load: Load, before: u64) {
        let report = load.finish().await;
        let retries = retries_of(&self.buyer).await - self.retries_before;
        let expected = self.named_retries.load(Ordering::Relaxed);
        eprintln!(
            "{} requests in {:?}: {:?}; {} messages, {} lines; retries: {retries}, of the load {}",
            report.requests,
            report.duration,
            report.by_status,
            report.stream_messages,
            report.connection_lines,
            retries.wrapping_sub(expected)
        );
        report.assert_answered_with(&[
            StatusCode::OK,
            load_status(Level::Mesh, Redirect),
            load_status(Level::Mesh, Abort),
            load_status(Level::Namespace, Abort),
        ]);
        self.long_connections.assert_uninterrupted(&report);
        assert_eq!(retries, expected);
        assert_eq!(self.unnamed_requests() - before, report.answers(StatusCode::OK));
        eventually("all copies to be answered", async || {
            let active =
                r"^cluster\.default/shadow-[a-z]+\|14001\.upstream_rq_(?:pending_)?active$";
            match self.buyer.sum(active).await {
                0 => Ok(()),
                active => Err(active),
            }
        })
        .await;
        for (name, what, expected) in &self.checked.lock().unwrap().copies {
            assert_eq!(self.copies(name), *expected, "{what}");
        }
        for envoy in [&self.server, &self.buyer] {
            envoy.assert_no_update_errors().await;
        }
    }
}

/// The number of retries of an Envoy.
async fn retries_of(envoy: &Envoy) -> u64 {
    envoy.sum(r"^cluster\..*\.upstream_rq_retry$").await
}

/// The times in an Envoy's configuration for requests by `Host`.
fn times_in(dump: &Value, host: &str, path: &str) -> Option<Times> {
    let configs = dump["configs"].as_array()?.iter().map(|one| &one["route_config"]);
    let mut hosts = configs
        .filter(|one| one["name"] == "outbound-http")
        .filter_map(|one| one["virtual_hosts"].as_array())
        .flatten();
    let has = |one: &&Value| {
        one["domains"].as_array().is_some_and(|all| all.iter().any(|one| one == host))
    };
    let routes = hosts.find(has)?["routes"].as_array()?;
    // The paths of all groups end this way, and the default route comes last.
    let is_named = |one: &&Value| one["match"].to_string().contains(&format!("{path}("));
    let route = routes.iter().find(is_named).or_else(|| routes.last())?;
    let text = |pointer: &str| route.pointer(pointer)?.as_str().map(str::to_owned);
    Some(Times {
        timeout: text("/route/timeout").filter(|timeout| timeout != "0s"),
        delay: text("/typed_per_filter_config/envoy.filters.http.fault/delay/fixed_delay"),
    })
}
