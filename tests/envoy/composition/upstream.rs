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
    App, Beside, Collector, Envoy, Http1Connection, Load, Mesh, Programs, ProxyOptions, RateLimits,
    eventually, get_once, request_name,
};
use serde_json::{Value, json};

use policy::{
    Connections, Global, Local, LocalOfRoute, Locality, Log, Outliers, Requests, Row, Sparing,
    number, rows, services, settings, too_many, treated,
};

use super::model::{Level, Outcome, Setting, WISH, model};
use super::tried_again;
use crate::bookstore::expect;

/// What is there in JSON, or null.
fn at(value: &Value, pointer: &str) -> Value {
    value.pointer(pointer).cloned().unwrap_or_default()
}

fn list<'a>(value: &'a Value, pointer: &str) -> &'a [Value] {
    value.pointer(pointer).and_then(Value::as_array).unwrap()
}

struct Square {
    mesh: Mesh,
    buyer: Envoy,
    server: Envoy,
    store: App,
    shadow: App,
    beside: Beside,
    limits: RateLimits,
    collector: Collector,
}

/// What a request came to, by its name.
struct Asked {
    name: String,
    status: u16,
}

impl Square {
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let (policy, names) = services();
        let policy = policy + Beside::POLICY;
        let mesh = Mesh::start(&programs, &[("services.toml", &policy)]).await;
        let others = mesh.loopback().host(OTHERS);
        // Nothing is too much of the load, and its chain, and the listeners of the buyer, have their logs already:
        // these are the nearest that say anything of them.
        // Of the stream nothing changes at all: a chain that does ends what goes on over it.
        let of_stream = |one: Sparing| {
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
        let socket = |port| mesh.loopback().socket(OTHERS, port);
        let limits = RateLimits::start(socket(8081), 1000).await;
        let collector = Collector::start(socket(4317)).await;
        let store = App::http1("store", mesh.loopback().socket(21, 8080)).await;
        let shadow = App::http1("shadow", mesh.loopback().socket(21, 8082)).await;
        // (Envoy reckons in whole seconds: within one of them no connection would be asked to end in good order.)
        let server = ProxyOptions::new("default/load", 21).locality("eu/1").drain_seconds(3);
        let others = names.iter().filter(|(_, name)| name != "load");
        let server = others
            .fold(server, |server, (namespace, name)| server.also(&format!("{namespace}/{name}")));
        let beside = Beside::start(|port| mesh.loopback().socket(21, port)).await;
        let server = mesh.envoy(&Beside::served_by(server)).await;
        let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/load=14001");
        let buyer = mesh.envoy(&Beside::called_by(buyer)).await;
        for (namespace, name) in &names {
            if name.starts_with("r-") {
                continue;
            }
            let host = format!("{name}.{namespace}:14001");
            eventually(&format!("{host} to answer"), async || {
                expect(&get_once(buyer.socket(15080), "/", &[("host", &host)]).await?, 200)
            })
            .await;
        }
        beside.wait_for(&buyer).await;
        Some(Self { mesh, buyer, server, store, shadow, beside, limits, collector })
    }

    /// Puts this in force, and waits until both Envoys have taken all of it, and have nothing of before any more.
    async fn say(&self, settings: &str) {
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
            for proxy in list(&self.mesh.proxies().await, "") {
                let id = at(proxy, "/id");
                let id = id.as_str().unwrap();
                let config = self.mesh.admin_get(&format!("/v1/proxies/{id}/config")).await;
                for one in list(&config, "/resources") {
                    let state = at(one, "/state");
                    // (Of a certificate that nothing asks for yet, none is needed.)
                    let is_secret = at(one, "/resource_type") == "secret";
                    let is_so = state == "taken" || is_secret && state == "not_taken";
                    anyhow::ensure!(is_so, "{state}: {}", at(one, "/name"));
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
    async fn taken(&self) -> BTreeMap<String, [Value; 4]> {
        let dump = self.buyer.config_dump().await;
        let all = |key: &str| {
            let lists = list(&dump, "/configs").iter().filter_map(|one| one.get(key)?.as_array());
            lists.flatten().collect::<Vec<_>>()
        };
        let weight = |one: &Value| {
            let name = at(one, "/endpoint_config/cluster_name");
            (name.to_string(), at(one, "/endpoint_config/endpoints/0/load_balancing_weight"))
        };
        let weights: BTreeMap<_, _> =
            all("dynamic_endpoint_configs").into_iter().map(weight).collect();
        let cluster = |one: &Value| {
            let name = at(one, "/cluster/name");
            // (Envoy is told ten thousand for each of a hundred.)
            let of_place = weights.get(&name.to_string()).and_then(Value::as_u64);
            let said = [
                at(one, "/cluster/circuit_breakers/thresholds/0/max_requests"),
                at(one, "/cluster/connect_timeout"),
                at(one, "/cluster/outlier_detection/consecutive_5xx"),
                json!(of_place.unwrap_or_default() / 10_000),
            ];
            (name.as_str().unwrap_or_default().to_owned(), said)
        };
        all("dynamic_active_clusters").into_iter().map(cluster).collect()
    }

    async fn ask(&self, host: &str, path: &str, answer: &str) -> Asked {
        let name = request_name();
        let mut connection = Http1Connection::connect(self.buyer.socket(15080)).await.unwrap();
        let wish = WISH.to_string();
        let headers = [
            ("host", host),
            ("x-ask", &name),
            ("x-answer", answer),
            ("x-envoy-retry-on", "5xx"),
            ("x-envoy-max-retries", &wish),
        ];
        let response = connection.request(Method::GET, path, &headers).await.unwrap();
        Asked { name, status: response.status.as_u16() }
    }

    /// How often the rate limit service was asked about a request, by what it was told.
    fn counted(&self, name: &str) -> BTreeMap<String, u64> {
        let end = format!(": ask={name}");
        let counts = self.limits.counts().into_iter();
        counts
            .filter_map(|(key, count)| Some((key.strip_suffix(&end)?.to_owned(), count.into())))
            .collect()
    }

    /// What sidecars have told of requests with names, by service and name: level and status of each time. Waits
    /// until they have told of all of them so often.
    async fn told(&self, times: &Told<usize>) -> Told<Vec<(Value, Value)>> {
        eventually("all records", async || {
            let records =
                self.collector.records_that(|one| one.attributes.get("ask") != Some(&json!("-")));
            let mut told = Told::<Vec<_>>::new();
            for one in records {
                let of = |key: &str| one.attributes.get(key).cloned().unwrap_or_default();
                let name = of("ask").as_str().unwrap_or_default().to_owned();
                told.entry((one.service.clone(), name))
                    .or_default()
                    .push((of("level"), of("status")));
            }
            let count = |key| told.get(key).map_or(0, Vec::len);
            let missing = times.iter().find(|(key, times)| count(key) < **times);
            anyhow::ensure!(missing.is_none(), "of {missing:?} there is less");
            // (So the shadow's sidecar does of copies, of which nobody waits for the answer.)
            told.retain(|(service, _), _| service != "shadow-service.default");
            Ok(told)
        })
        .await
    }

    /// How many requests have come to the sidecar of a service of `default`.
    async fn arrived(&self, service: &str) -> u64 {
        let stat = format!("http.inbound_default_{service}_14001.downstream_rq_total");
        self.server.sum(&format!("^{}$", stat.replace('.', "\\."))).await
    }

    async fn holds_for_row(&self, row: &Row) -> Vec<Asked> {
        let paths = [["/books"; 4], ["/search"; 4]].concat();
        let mut asked = Vec::new();
        for path in &paths {
            asked.push(self.ask(&row.host(), path, "200").await);
        }
        let statuses: Vec<_> = asked.iter().map(|one| one.status).collect();
        assert_eq!(statuses, row.statuses(&paths), "{}", row.host());
        let domain = row.level(Global).name();
        for one in &asked {
            let counted = self.counted(&one.name);
            let once = BTreeMap::from([(domain.clone(), 1)]);
            // (Of the two kinds of limits nobody says which is the first.)
            let is_so = counted == once || one.status != 200 && counted.is_empty();
            assert!(is_so, "{}: {counted:?}", row.host());
        }
        asked
    }

    /// What a service of which HTTP routes or a retry say something comes to within the limits of the mesh.
    ///
    /// Returns how often each request came to the server's sidecar, and whether one of these was too many.
    async fn holds_for_treated(
        &self,
        service: &str,
        said: &[(Level, Setting)],
    ) -> Vec<(Asked, u64, bool)> {
        let Outcome { status, tries, path, app, copies, .. } = model("/books", said);
        let limit = match path {
            Some(path) if path.starts_with("/se") => LocalOfRoute,
            _ => Local,
        };
        let mut left = u64::from(number(Level::Mesh));
        let mut outcomes = Vec::new();
        for _ in 0..4 {
            let before = self.arrived(service).await;
            let asked = self.ask(&format!("{service}:14001"), "/books", "503").await;
            // Each try uses up one; the first that is too many is no 503, and is not tried again.
            let seen = tries.min(left);
            left -= seen;
            let is_too_many = app.is_some() && seen < tries;
            let status = if is_too_many { too_many(limit, Level::Mesh) } else { status };
            assert_eq!((asked.status, self.store.asked(&asked.name)), (status, seen), "{service}");
            let arrived = seen + u64::from(is_too_many);
            assert_eq!(self.arrived(service).await - before, arrived, "{service}");
            let counted = self.counted(&asked.name);
            let counted = counted.get("mesh").copied().unwrap_or_default();
            // (So the shadow's sidecar does of copies, of which nobody waits for the answer.)
            let is_so = (seen..=arrived + copies.values().sum::<u64>()).contains(&counted);
            assert!(is_so, "{service}: {counted} of {arrived}");
            outcomes.push((asked, arrived, is_too_many));
        }
        outcomes
    }
}

/// How often something of load was tried again.
const OF_LOAD: &str = r"^cluster\.default/(?:load|calls)\|.*\.upstream_rq_retry$";

/// By the service that tells, and the name of the request.
type Told<T> = BTreeMap<(String, String), T>;

/// Where the rate limit service and the collector are.
const OTHERS: u8 = 61;

#[tokio::test(flavor = "multi_thread")]
#[ignore = "long: make test-long-composition"]
async fn every_upstream_setting_level_matches_the_reference() {
    let Some(square) = Square::open().await else { return };
    let (before, tried_before) = (square.store.unnamed(), tried_again(&square.buyer).await);
    let load = Load::start(square.buyer.socket(14001), "load", "/load");
    let load = square.beside.join(load, &square.buyer).await;
    square.say(&settings(square.mesh.loopback().host(OTHERS))).await;
    let taken = square.taken().await;
    let mut asked = Vec::new();
    for row in rows() {
        let n = |sparing| number(row.level(sparing));
        let expected = [
            json!(1000 + n(Requests)),
            json!(format!("{}s", 10 + n(Connections))),
            json!(1000 + n(Outliers)),
            json!(10 * n(Locality)),
        ];
        let cluster = format!("{}/{}|14001", row.namespace, row.service);
        assert_eq!(taken.get(&cluster), Some(&expected), "{cluster}");
        asked.push(square.holds_for_row(&row).await);
    }
    let mut treatments = Vec::new();
    for (service, said) in treated() {
        let outcomes = square.holds_for_treated(&service, &said).await;
        treatments.push((service, outcomes));
    }
    // Copies use up what the shadow has, and no more come to it.
    let shadow = "cluster.default/shadow-service|14001.upstream_rq";
    eventually("all copies to be answered", async || {
        let made = square.buyer.stat(&format!("{shadow}_total")).await;
        let done = square.buyer.stat(&format!("{shadow}_completed")).await;
        if made == done { Ok(()) } else { Err(format!("{done} of {made}")) }
    })
    .await;
    let copies = square.shadow.requests() - square.shadow.unnamed();
    assert_eq!(copies, u64::from(number(Level::Mesh)));
    // The caller's sidecar tells of each request, and the server's of each try, by the nearest that says how.
    let mut expected = Told::<Vec<_>>::new();
    let mut expect = |service: &str, one: &Asked, level: Level, statuses: &[u16]| {
        let told = statuses.iter().map(|status| (json!(level.name()), json!(status.to_string())));
        expected.insert((service.to_owned(), one.name.clone()), told.collect());
    };
    for (row, asked) in rows().iter().zip(&asked) {
        for one in asked {
            let service = format!("{}.{}", row.service, row.namespace);
            expect(&service, one, row.level(Log), &[one.status]);
            expect("buyer.default", one, Level::Service, &[one.status]);
        }
    }
    for (service, outcomes) in &treatments {
        for (one, arrived, is_too_many) in outcomes {
            let mut statuses = vec![503; usize::try_from(*arrived).unwrap()];
            if *is_too_many {
                *statuses.last_mut().unwrap() = one.status;
            }
            if !statuses.is_empty() {
                expect(&format!("{service}.default"), one, Level::Mesh, &statuses);
            }
            expect("buyer.default", one, Level::Service, &[one.status]);
        }
    }
    let times = expected.iter().map(|(key, told)| (key.clone(), told.len())).collect();
    assert_eq!(square.told(&times).await, expected);
    // Withdrawn, all is as always.
    square.say("").await;
    let always = [json!(u32::MAX), json!("5s"), Value::Null, json!(0)];
    let taken = square.taken().await;
    for row in rows() {
        let cluster = format!("{}/{}|14001", row.namespace, row.service);
        assert_eq!(taken.get(&cluster), Some(&always), "{cluster}");
    }
    let rows = rows();
    for row in rows.iter().filter(|row| row.of_service == row.of_namespace) {
        for path in [["/books"; 4], ["/search"; 4]].concat() {
            let asked = square.ask(&row.host(), path, "200").await;
            assert_eq!(
                (asked.status, square.counted(&asked.name).len()),
                (200, 0),
                "{}",
                row.host()
            );
            let told = vec![(json!(Level::Service.name()), json!("200"))];
            expected.insert(("buyer.default".to_owned(), asked.name), told);
        }
    }
    // Nor has anything been told once more since, when what came last is told.
    let times = expected.iter().map(|(key, told)| (key.clone(), told.len())).collect();
    assert_eq!(square.told(&times).await, expected);
    let report = load.finish().await;
    let retries = tried_again(&square.buyer).await - tried_before;
    eprintln!(
        "{} requests, {} messages, {} lines; retries: {retries}, of the load {}",
        report.requests,
        report.stream_messages,
        report.connection_lines,
        square.buyer.sum(OF_LOAD).await
    );
    report.assert_undisturbed();
    square.beside.assert_went_on(&report);
    assert_eq!(square.buyer.sum(OF_LOAD).await, 0);
    assert_eq!(square.store.unnamed() - before, report.requests);
    for envoy in [&square.server, &square.buyer] {
        envoy.assert_calm().await;
    }
}
