//! Combinations of upstream settings, rate limits and access logs: each at each level with each
//! other, and with each HTTP setting. One mesh has one service for each pair, under load.
//!
//! Answers show limits of connections, ejections and locality weights only under much load. This
//! test reads them from the caller's Envoy; `upstream_settings` shows their effect.

mod policy;

use std::collections::BTreeMap;
use std::fmt::Write as _;

use http::Method;
use ironmesh_tests::{
    App, Collector, Envoy, Http1Connection, Load, LongConnections, Mesh, Programs, ProxyOptions,
    RateLimits, eventually, get_once, request_name,
};
use serde_json::{Value, json};

use policy::{
    Connections, Global, Local, LocalOfRoute, Locality, Log, Outliers, Requests, Row,
    UpstreamSetting, number, rejection_status, routed_services, rows, services, settings,
};

use super::model::{CALLER_RETRIES, Level, Outcome, Setting, model};
use super::retries_of;
use crate::bookstore::ensure_status;

/// The JSON value at a pointer, or null.
fn value_at(value: &Value, pointer: &str) -> Value {
    value.pointer(pointer).cloned().unwrap_or_default()
}

fn list_at<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).unwrap()
}

struct UpstreamMesh {
    mesh: Mesh,
    buyer: Envoy,
    server: Envoy,
    store: App,
    shadow: App,
    long_connections: LongConnections,
    limits: RateLimits,
    collector: Collector,
}

/// A request by its name, and its status.
struct SentRequest {
    name: String,
    status: u16,
}

impl UpstreamMesh {
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let (policy, names) = services();
        let policy = policy + LongConnections::POLICY;
        let mesh = Mesh::start(&programs, &[("services.toml", &policy)]).await;
        let others = mesh.loopback().host(OBSERVERS_HOST);
        // The load is within all limits. Its chain and the buyer's listeners have their own access
        // logs, so the nearest settings of these never change. The stream's chain never changes at
        // all, because a changed chain ends its streams.
        let of_stream = |one: UpstreamSetting| {
            let about = format!("name = \"own-{}\"\nservice = \"calls\"", one.name());
            // The different key distinguishes these from later settings.
            one.object(Level::Service, &about, others).replace("key = \"ask\"", "key = \"own\"")
        };
        let mut own = [LocalOfRoute, Global].map(of_stream).concat();
        for name in ["load", "calls"] {
            write!(
                own,
                "[[upstream_traffic_setting]]\nname = \"{name}\"\nservice = \"{name}\"\n\
                 rate_limit.local.http = {{ requests = 1000000, unit = \"second\" }}\n"
            )
            .unwrap();
        }
        for name in ["load", "calls", "ledger", "buyer"] {
            let about = format!("name = \"{name}\"\nservice = \"{name}\"");
            own += &Log.object(Level::Service, &about, others);
            own += "[telemetry.access_log.filter]\n";
            // The load is not logged.
            own +=
                if name == "buyer" { "status_at_least = 100\n" } else { "status_at_least = 599\n" };
        }
        mesh.write_policy("own.toml", &own);
        let socket = |port| mesh.loopback().socket(OBSERVERS_HOST, port);
        let limits = RateLimits::start(socket(8081), 1000).await;
        let collector = Collector::start(socket(4317)).await;
        let store = App::http1("store", mesh.loopback().socket(21, 8080)).await;
        let shadow = App::http1("shadow", mesh.loopback().socket(21, 8082)).await;
        // Envoy counts whole seconds: within one of them it would not ask connections to end in
        // good order.
        let server = ProxyOptions::new("default/load", 21).locality("eu/1").drain_seconds(3);
        let others = names.iter().filter(|(_, name)| name != "load");
        let server = others.fold(server, |server, (namespace, name)| {
            server.with_service(&format!("{namespace}/{name}"))
        });
        let long_connections =
            LongConnections::start(|port| mesh.loopback().socket(21, port)).await;
        let server = mesh.envoy(&LongConnections::with_services(server)).await;
        let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/load=14001");
        let buyer = mesh.envoy(&LongConnections::with_upstreams(buyer)).await;
        for (namespace, name) in &names {
            if name.starts_with("r-") {
                continue;
            }
            let host = format!("{name}.{namespace}:14001");
            eventually(&format!("{host} to answer"), async || {
                ensure_status(&get_once(buyer.socket(15080), "/", &[("host", &host)]).await?, 200)
            })
            .await;
        }
        long_connections.wait_for(&buyer).await;
        Some(Self { mesh, buyer, server, store, shadow, long_connections, limits, collector })
    }

    /// Writes these settings, and waits until both Envoys have ACKed them and drained the previous
    /// ones.
    async fn apply(&self, settings: &str) {
        self.mesh.write_policy("settings.toml", settings);
        let is_said = !settings.is_empty();
        // First a part on each side: from then on the control plane has compiled the rest.
        for (envoy, text) in
            [(&self.server, "\"descriptor_key\":\"ask\""), (&self.buyer, "\"consecutive_5xx\"")]
        {
            eventually(&format!("{text} to be there: {is_said}"), async || {
                let has = envoy.config_dump().await.to_string().contains(text);
                if has == is_said { Ok(()) } else { Err(self.mesh.log()) }
            })
            .await;
        }
        eventually("all resources to be ACKed", async || {
            for proxy in list_at(&self.mesh.proxies().await, "") {
                let id = value_at(proxy, "/id");
                let id = id.as_str().unwrap();
                let config = self.mesh.admin_get(&format!("/v1/proxies/{id}/config")).await;
                for one in list_at(&config, "/resources") {
                    let state = value_at(one, "/state");
                    // A certificate that nothing refers to yet is not requested.
                    let is_secret = value_at(one, "/resource_type") == "secret";
                    let condition = state == "acked" || is_secret && state == "not_sent";
                    anyhow::ensure!(condition, "{state}: {}", value_at(one, "/name"));
                }
            }
            let draining = self.server.stat("listener_manager.total_filter_chains_draining").await;
            anyhow::ensure!(draining == 0, "{draining} chains are draining");
            Ok(())
        })
        .await;
    }

    /// The settings in the buyer's Envoy by cluster: request limit, connect timeout, ejection and
    /// locality weight.
    async fn cluster_settings(&self) -> BTreeMap<String, [Value; 4]> {
        let dump = self.buyer.config_dump().await;
        let all = |key: &str| {
            let lists =
                list_at(&dump, "/configs").iter().filter_map(|one| one.get(key)?.as_array());
            lists.flatten().collect::<Vec<_>>()
        };
        let weight = |one: &Value| {
            let name = value_at(one, "/endpoint_config/cluster_name");
            (name.to_string(), value_at(one, "/endpoint_config/endpoints/0/load_balancing_weight"))
        };
        let weights: BTreeMap<_, _> =
            all("dynamic_endpoint_configs").into_iter().map(weight).collect();
        let cluster = |one: &Value| {
            let name = value_at(one, "/cluster/name");
            // Envoy's weight for 1 percent is 100.
            let of_place = weights.get(&name.to_string()).and_then(Value::as_u64);
            let own_settings = [
                value_at(one, "/cluster/circuit_breakers/thresholds/0/max_requests"),
                value_at(one, "/cluster/connect_timeout"),
                value_at(one, "/cluster/outlier_detection/consecutive_5xx"),
                json!(of_place.unwrap_or_default() / 10_000),
            ];
            (name.as_str().unwrap_or_default().to_owned(), own_settings)
        };
        all("dynamic_active_clusters").into_iter().map(cluster).collect()
    }

    async fn request_secret(&self, host: &str, path: &str, answer: &str) -> SentRequest {
        let name = request_name();
        let mut connection = Http1Connection::connect(self.buyer.socket(15080)).await.unwrap();
        let wish = CALLER_RETRIES.to_string();
        let headers = [
            ("host", host),
            ("x-request-name", &name),
            ("x-answer", answer),
            ("x-envoy-retry-on", "5xx"),
            ("x-envoy-max-retries", &wish),
        ];
        let response = connection.request(Method::GET, path, &headers).await.unwrap();
        SentRequest { name, status: response.status.as_u16() }
    }

    /// The rate limit service's counts for a request, by descriptor.
    fn rate_limit_counts(&self, name: &str) -> BTreeMap<String, u64> {
        let end = format!(": ask={name}");
        let counts = self.limits.counts().into_iter();
        counts
            .filter_map(|(key, count)| Some((key.strip_suffix(&end)?.to_owned(), count.into())))
            .collect()
    }

    /// The access log records by service and request name: level and status of each. Waits until
    /// all expected records have arrived.
    async fn access_log_records(
        &self,
        times: &PerRequest<usize>,
    ) -> PerRequest<Vec<(Value, Value)>> {
        eventually("all records", async || {
            let records =
                self.collector.records_where(|one| one.attributes.get("ask") != Some(&json!("-")));
            let mut logged = PerRequest::<Vec<_>>::new();
            for one in records {
                let of = |key: &str| one.attributes.get(key).cloned().unwrap_or_default();
                let name = of("ask").as_str().unwrap_or_default().to_owned();
                logged
                    .entry((one.service.clone(), name))
                    .or_default()
                    .push((of("level"), of("status")));
            }
            let count = |key| logged.get(key).map_or(0, Vec::len);
            let missing = times.iter().find(|(key, times)| count(key) < **times);
            anyhow::ensure!(missing.is_none(), "of {missing:?} there is less");
            // Mirror targets log copies, whose answers no test waits for.
            logged.retain(|(service, _), _| service != "shadow-service.default");
            Ok(logged)
        })
        .await
    }

    /// The number of requests that reached the sidecar of a service of `default`.
    async fn server_requests(&self, service: &str) -> u64 {
        let stat = format!("http.inbound_default_{service}_14001.downstream_rq_total");
        self.server.sum(&format!("^{}$", stat.replace('.', "\\."))).await
    }

    async fn check_row(&self, row: &Row) -> Vec<SentRequest> {
        let paths = [["/books"; 4], ["/search"; 4]].concat();
        let mut sent = Vec::new();
        for path in &paths {
            sent.push(self.request_secret(&row.host(), path, "200").await);
        }
        let statuses: Vec<_> = sent.iter().map(|one| one.status).collect();
        assert_eq!(statuses, row.statuses(&paths), "{}", row.host());
        let domain = row.level(Global).name();
        for one in &sent {
            let counted = self.rate_limit_counts(&one.name);
            let once = BTreeMap::from([(domain.clone(), 1)]);
            // If both kinds of limits apply, their order is undefined.
            let condition = counted == once || one.status != 200 && counted.is_empty();
            assert!(condition, "{}: {counted:?}", row.host());
        }
        sent
    }

    /// Checks a service with HTTP settings or retries under the limits of the mesh.
    ///
    /// Returns how often each request reached the server's sidecar, and whether one of these
    /// exceeded the limit.
    async fn check_routed_service(
        &self,
        service: &str,
        own_settings: &[(Level, Setting)],
    ) -> Vec<(SentRequest, u64, bool)> {
        let Outcome { status, tries, path, app, copies, .. } = model("/books", own_settings);
        let limit = match path {
            Some(path) if path.starts_with("/se") => LocalOfRoute,
            _ => Local,
        };
        let mut left = u64::from(number(Level::Mesh));
        let mut outcomes = Vec::new();
        for _ in 0..4 {
            let before = self.server_requests(service).await;
            let sent = self.request_secret(&format!("{service}:14001"), "/books", "503").await;
            // Each try uses up one; the first beyond the limit gets no 503, and is not retried.
            let seen = tries.min(left);
            left -= seen;
            let is_too_many = app.is_some() && seen < tries;
            let status = if is_too_many { rejection_status(limit, Level::Mesh) } else { status };
            assert_eq!(
                (sent.status, self.store.requests_named(&sent.name)),
                (status, seen),
                "{service}"
            );
            let arrived = seen + u64::from(is_too_many);
            assert_eq!(self.server_requests(service).await - before, arrived, "{service}");
            let counted = self.rate_limit_counts(&sent.name);
            let counted = counted.get("mesh").copied().unwrap_or_default();
            // Mirror targets count copies, whose answers no test waits for.
            let condition = (seen..=arrived + copies.values().sum::<u64>()).contains(&counted);
            assert!(condition, "{service}: {counted} of {arrived}");
            outcomes.push((sent, arrived, is_too_many));
        }
        outcomes
    }
}

/// The retries of the load.
const OF_LOAD: &str = r"^cluster\.default/(?:load|calls)\|.*\.upstream_rq_retry$";

/// Values by the logging service and the request's name.
type PerRequest<T> = BTreeMap<(String, String), T>;

/// The host of the rate limit service and the collector.
const OBSERVERS_HOST: u8 = 61;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-long-composition"]
async fn every_upstream_setting_level_matches_the_reference() {
    let Some(setup) = UpstreamMesh::open().await else { return };
    let (before, tried_before) = (setup.store.unnamed_requests(), retries_of(&setup.buyer).await);
    let load = Load::start(setup.buyer.socket(14001), "load", "/load");
    let load = setup.long_connections.join(load, &setup.buyer).await;
    setup.apply(&settings(setup.mesh.loopback().host(OBSERVERS_HOST))).await;
    let accepted = setup.cluster_settings().await;
    let mut sent = Vec::new();
    for row in rows() {
        let n = |setting| number(row.level(setting));
        let expected = [
            json!(1000 + n(Requests)),
            json!(format!("{}s", 10 + n(Connections))),
            json!(1000 + n(Outliers)),
            json!(10 * n(Locality)),
        ];
        let cluster = format!("{}/{}|14001", row.namespace, row.service);
        assert_eq!(accepted.get(&cluster), Some(&expected), "{cluster}");
        sent.push(setup.check_row(&row).await);
    }
    let mut treatments = Vec::new();
    for (service, own_settings) in routed_services() {
        let outcomes = setup.check_routed_service(&service, &own_settings).await;
        treatments.push((service, outcomes));
    }
    // Copies use up the mirror target's limit, and the rest are rejected.
    let shadow = "cluster.default/shadow-service|14001.upstream_rq";
    eventually("all copies to be answered", async || {
        let made = setup.buyer.stat(&format!("{shadow}_total")).await;
        let done = setup.buyer.stat(&format!("{shadow}_completed")).await;
        if made == done { Ok(()) } else { Err(format!("{done} of {made}")) }
    })
    .await;
    let copies = setup.shadow.requests() - setup.shadow.unnamed_requests();
    assert_eq!(copies, u64::from(number(Level::Mesh)));
    // The caller's sidecar logs each request, and the server's sidecar each try, by the nearest
    // setting.
    let mut expected = PerRequest::<Vec<_>>::new();
    let mut expect_records = |service: &str, one: &SentRequest, level: Level, statuses: &[u16]| {
        let logged = statuses.iter().map(|status| (json!(level.name()), json!(status.to_string())));
        expected.insert((service.to_owned(), one.name.clone()), logged.collect());
    };
    for (row, sent) in rows().iter().zip(&sent) {
        for one in sent {
            let service = format!("{}.{}", row.service, row.namespace);
            expect_records(&service, one, row.level(Log), &[one.status]);
            expect_records("buyer.default", one, Level::Service, &[one.status]);
        }
    }
    for (service, outcomes) in &treatments {
        for (one, arrived, is_too_many) in outcomes {
            let mut statuses = vec![503; usize::try_from(*arrived).unwrap()];
            if *is_too_many {
                *statuses.last_mut().unwrap() = one.status;
            }
            if !statuses.is_empty() {
                expect_records(&format!("{service}.default"), one, Level::Mesh, &statuses);
            }
            expect_records("buyer.default", one, Level::Service, &[one.status]);
        }
    }
    let times = expected.iter().map(|(key, logged)| (key.clone(), logged.len())).collect();
    assert_eq!(setup.access_log_records(&times).await, expected);
    // After removal the defaults apply.
    setup.apply("").await;
    let always = [json!(u32::MAX), json!("5s"), Value::Null, json!(0)];
    let accepted = setup.cluster_settings().await;
    for row in rows() {
        let cluster = format!("{}/{}|14001", row.namespace, row.service);
        assert_eq!(accepted.get(&cluster), Some(&always), "{cluster}");
    }
    let rows = rows();
    for row in rows.iter().filter(|row| row.of_service == row.of_namespace) {
        for path in [["/books"; 4], ["/search"; 4]].concat() {
            let sent = setup.request_secret(&row.host(), path, "200").await;
            assert_eq!(
                (sent.status, setup.rate_limit_counts(&sent.name).len()),
                (200, 0),
                "{}",
                row.host()
            );
            let logged = vec![(json!(Level::Service.name()), json!("200"))];
            expected.insert(("buyer.default".to_owned(), sent.name), logged);
        }
    }
    // Once the last record has arrived, no record has arrived twice.
    let times = expected.iter().map(|(key, logged)| (key.clone(), logged.len())).collect();
    assert_eq!(setup.access_log_records(&times).await, expected);
    let report = load.finish().await;
    let retries = retries_of(&setup.buyer).await - tried_before;
    eprintln!(
        "{} requests, {} messages, {} lines; retries: {retries}, of the load {}",
        report.requests,
        report.stream_messages,
        report.connection_lines,
        setup.buyer.sum(OF_LOAD).await
    );
    report.assert_undisturbed();
    setup.long_connections.assert_uninterrupted(&report);
    assert_eq!(setup.buyer.sum(OF_LOAD).await, 0);
    assert_eq!(setup.store.unnamed_requests() - before, report.requests);
    for envoy in [&setup.server, &setup.buyer] {
        envoy.assert_no_update_errors().await;
    }
}
