//! How services are spared and what is told of their calls: each setting at each level beside each other one, and
//! beside each setting of HTTP routes, in one mesh with one service for each pair, while load goes on.
//!
//! What answers cannot show without much of them (limits of connections and requests, ejections, shares of places)
//! is looked up in what the caller's Envoy has taken; that it does so is shown in `upstream_settings`.

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

/// What is there in JSON, or null.
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

/// What a request came to, by its name.
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
        // Nothing is too much of the load, and its chain, and the listeners of the buyer, have their logs already:
        // these are the nearest that say anything of them.
        // Of the stream nothing changes at all: a chain that does ends what goes on over it.
        let of_stream = |one: UpstreamSetting| {
            let about = format!("name = \"own-{}\"\nservice = \"calls\"", one.name());
            // (By the other key it is seen what is said later.)
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
            // Of the load they tell nothing.
            own +=
                if name == "buyer" { "status_at_least = 100\n" } else { "status_at_least = 599\n" };
        }
        mesh.write_policy("own.toml", &own);
        let socket = |port| mesh.loopback().socket(OBSERVERS_HOST, port);
        let limits = RateLimits::start(socket(8081), 1000).await;
        let collector = Collector::start(socket(4317)).await;
        let store = App::http1("store", mesh.loopback().socket(21, 8080)).await;
        let shadow = App::http1("shadow", mesh.loopback().socket(21, 8082)).await;
        // (Envoy reckons in whole seconds: within one of them no connection would be asked to end in good order.)
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

    /// Puts this in force, and waits until both Envoys have taken all of it, and have nothing of before any more.
    async fn apply(&self, settings: &str) {
        self.mesh.write_policy("settings.toml", settings);
        let is_said = !settings.is_empty();
        // First something of it on each side: from then on the control plane means them to have the rest.
        for (envoy, text) in
            [(&self.server, "\"descriptor_key\":\"ask\""), (&self.buyer, "\"consecutive_5xx\"")]
        {
            eventually(&format!("{text} to be there: {is_said}"), async || {
                let has = envoy.config_dump().await.to_string().contains(text);
                if has == is_said { Ok(()) } else { Err(self.mesh.log()) }
            })
            .await;
        }
        eventually("all to be taken", async || {
            for proxy in list_at(&self.mesh.proxies().await, "") {
                let id = value_at(proxy, "/id");
                let id = id.as_str().unwrap();
                let config = self.mesh.admin_get(&format!("/v1/proxies/{id}/config")).await;
                for one in list_at(&config, "/resources") {
                    let state = value_at(one, "/state");
                    // (Of a certificate that nothing asks for yet, none is needed.)
                    let is_secret = value_at(one, "/resource_type") == "secret";
                    let condition = state == "taken" || is_secret && state == "not_taken";
                    anyhow::ensure!(condition, "{state}: {}", value_at(one, "/name"));
                }
            }
            let draining = self.server.stat("listener_manager.total_filter_chains_draining").await;
            anyhow::ensure!(draining == 0, "{draining} chains are draining");
            Ok(())
        })
        .await;
    }

    /// What the buyer's Envoy has of each cluster: the limits of requests and of making connections, and when
    /// whom it ejects.
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
            // (Envoy is told ten thousand for each of a hundred.)
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

    /// How often the rate limit service was asked about a request, by what it was told.
    fn rate_limit_counts(&self, name: &str) -> BTreeMap<String, u64> {
        let end = format!(": ask={name}");
        let counts = self.limits.counts().into_iter();
        counts
            .filter_map(|(key, count)| Some((key.strip_suffix(&end)?.to_owned(), count.into())))
            .collect()
    }

    /// What sidecars have told of requests with names, by service and name: level and status of each time. Waits
    /// until they have told of all of them so often.
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
            // (So the shadow's sidecar does of copies, of which nobody waits for the answer.)
            logged.retain(|(service, _), _| service != "shadow-service.default");
            Ok(logged)
        })
        .await
    }

    /// How many requests have come to the sidecar of a service of `default`.
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
            // (Of the two kinds of limits nobody says which is the first.)
            let condition = counted == once || one.status != 200 && counted.is_empty();
            assert!(condition, "{}: {counted:?}", row.host());
        }
        sent
    }

    /// What a service of which HTTP routes or a retry say something comes to within the limits of the mesh.
    ///
    /// Returns how often each request came to the server's sidecar, and whether one of these was too many.
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
            // Each try uses up one; the first that is too many is no 503, and is not tried again.
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
            // (So the shadow's sidecar does of copies, of which nobody waits for the answer.)
            let condition = (seen..=arrived + copies.values().sum::<u64>()).contains(&counted);
            assert!(condition, "{service}: {counted} of {arrived}");
            outcomes.push((sent, arrived, is_too_many));
        }
        outcomes
    }
}

/// How often something of load was tried again.
const OF_LOAD: &str = r"^cluster\.default/(?:load|calls)\|.*\.upstream_rq_retry$";

/// By the service that tells, and the name of the request.
type PerRequest<T> = BTreeMap<(String, String), T>;

/// Where the rate limit service and the collector are.
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
    // Copies use up what the shadow has, and no more come to it.
    let shadow = "cluster.default/shadow-service|14001.upstream_rq";
    eventually("all copies to be answered", async || {
        let made = setup.buyer.stat(&format!("{shadow}_total")).await;
        let done = setup.buyer.stat(&format!("{shadow}_completed")).await;
        if made == done { Ok(()) } else { Err(format!("{done} of {made}")) }
    })
    .await;
    let copies = setup.shadow.requests() - setup.shadow.unnamed_requests();
    assert_eq!(copies, u64::from(number(Level::Mesh)));
    // The caller's sidecar tells of each request, and the server's of each try, by the nearest that says how.
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
    // Withdrawn, all is as always.
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
    // Nor has anything been told once more since, when what came last is told.
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
