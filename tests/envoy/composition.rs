//! What several settings come to together: each pair of them on real Envoys, each at every level below that of the
//! other, while load goes on.
//!
//! What a request comes to is worked out by a model of what the reference says, and compared with what
//! happens.

mod spared;

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, StatusCode};
use ironmesh_tests::{
    App, Envoy, Http1Connection, Load, Mesh, Programs, ProxyOptions, eventually, get_once,
    request_name,
};

use crate::bookstore::expect;

/// A setting of an HTTP route.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Setting {
    Timeout,
    Retries,
    Delay,
    Abort,
    RequestHeaders,
    ResponseHeaders,
    Rewrite,
    Redirect,
    Mirror,
    Overrides,
}

use Setting::{
    Abort, Delay, Mirror, Overrides, Redirect, RequestHeaders, ResponseHeaders, Retries, Rewrite,
    Timeout,
};

const ALL: [Setting; 10] = [
    Timeout,
    Retries,
    Delay,
    Abort,
    RequestHeaders,
    ResponseHeaders,
    Rewrite,
    Redirect,
    Mirror,
    Overrides,
];

/// Who says a setting, the farthest first.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Level {
    Mesh,
    Namespace,
    Service,
    /// An object of the kind `retry`, which says nothing but retries.
    Retry,
    Route,
}

impl Level {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    /// How often is tried again that this level says, and nobody else.
    fn retries(self) -> u64 {
        match self {
            Self::Mesh => 2,
            Self::Namespace => 3,
            Self::Service => 4,
            Self::Retry => 5,
            Self::Route => 6,
        }
    }
}

/// How often who asks would like to be tried again.
const WISH: u64 = 1;

impl Setting {
    fn name(self) -> String {
        format!("{self:?}").to_lowercase()
    }

    fn path(self) -> String {
        format!("/{}", self.name())
    }

    /// What an HTTP route of a level says.
    fn key(self, level: Level) -> String {
        let place = level.name();
        match self {
            // No test waits for so long: what a caller may say is shorter.
            Timeout => "timeout = \"60s\"".to_owned(),
            Retries => format!(
                "retries = {{ retry_on = [\"503\"], num_retries = {}, backoff_base_interval = \"1ms\" }}",
                level.retries()
            ),
            Delay => "fault = { delay = { duration = \"1ms\", percent = 100 } }".to_owned(),
            Abort => "fault = { abort = { status = 418, percent = 100 } }".to_owned(),
            RequestHeaders => format!("request_headers = {{ set = {{ x-said = \"{place}\" }} }}"),
            ResponseHeaders => format!("response_headers = {{ set = {{ x-told = \"{place}\" }} }}"),
            Rewrite => {
                format!("rewrite = {{ path_prefix = {{ from = \"/\", to = \"/{place}\" }} }}")
            }
            Redirect => format!("redirect = {{ status = 307, host = \"{place}.example\" }}"),
            Mirror => "mirror = { service = \"shadow\", namespace = \"default\" }".to_owned(),
            Overrides => "allow_override_headers = true".to_owned(),
        }
    }

    /// Whether nearer and farther ones of these are the same setting, so that the nearer alone is taken.
    fn is_the_same_as(self, other: Self) -> bool {
        let is_fault = |one| matches!(one, Delay | Abort);
        self == other || is_fault(self) && is_fault(other)
    }
}

/// What comes of one request.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    status: u16,
    /// Who has answered, if an application has, and at which path.
    app: Option<String>,
    path: Option<String>,
    /// How often the request came to the application.
    tries: u64,
    /// What the application was told, and the caller.
    said: Option<String>,
    told: Option<String>,
    /// Where the caller was sent.
    location: Option<String>,
    /// How many copies there were.
    copies: u64,
    /// How many were delayed.
    delayed: u64,
}

/// What a request for a path comes to of which these levels say these settings.
fn model(path: &str, said: &[(Level, Setting)]) -> Outcome {
    let nearest = |setting: Setting| {
        let same = said.iter().filter(|(_, one)| one.is_the_same_as(setting));
        same.max_by_key(|(level, _)| *level).filter(|(_, one)| *one == setting)
    };
    let place = |setting| nearest(setting).map(|(level, _)| level.name());
    let has = |setting| nearest(setting).is_some();
    // The caller's own wish comes before policy where he may have one.
    let again = match nearest(Retries) {
        _ if has(Overrides) => WISH,
        Some((level, _)) => level.retries(),
        None => 0,
    };
    let outcome = Outcome {
        status: 503,
        app: Some("store".to_owned()),
        path: Some(
            place(Rewrite).map_or_else(|| path.to_owned(), |place| format!("/{place}{path}")),
        ),
        tries: 1 + again,
        said: place(RequestHeaders),
        told: place(ResponseHeaders),
        location: None,
        copies: u64::from(has(Mirror)),
        delayed: u64::from(has(Delay)),
    };
    // Nothing of what is answered by the caller's own sidecar comes to anybody else.
    let own = |status, location| Outcome {
        status,
        location,
        app: None,
        path: None,
        tries: 0,
        said: None,
        copies: 0,
        told: outcome.told.clone(),
        delayed: outcome.delayed,
    };
    if has(Abort) {
        own(418, None)
    } else if let Some(place) = place(Redirect) {
        own(307, Some(format!("http://{place}.example{path}")))
    } else {
        outcome
    }
}

/// What load is answered with of which one setting is said.
fn of_load(setting: Setting) -> StatusCode {
    match setting {
        Abort => StatusCode::IM_A_TEAPOT,
        Redirect => StatusCode::TEMPORARY_REDIRECT,
        _ => StatusCode::OK,
    }
}

/// The services, by namespace. What is near to a call is said once and for all: of `store`, `whole` and `asked`
/// by routes, of `again` and `asked` by a retry, and of one service and one namespace for each setting by these
/// themselves.
fn services() -> BTreeMap<String, Vec<String>> {
    let names = |names: &[&str]| names.iter().map(|&name| name.to_owned()).collect::<Vec<_>>();
    let mut services = BTreeMap::from([
        ("default".to_owned(), names(&["store", "next", "shadow", "bare", "again"])),
        ("plain".to_owned(), names(&["whole", "again", "asked"])),
    ]);
    for setting in ALL {
        let name = setting.name();
        services.entry(format!("n-{name}")).or_default().push("store".to_owned());
        services.entry("default".to_owned()).or_default().push(format!("s-{name}"));
    }
    services
}

/// The services and who may call them.
fn places() -> String {
    let mut policy = "[[service]]\nname = \"buyer\"\n".to_owned();
    for (namespace, services) in services() {
        let mut object = |text: &str| {
            let (kind, rest) = text.split_once('\n').unwrap();
            writeln!(policy, "{kind}\nnamespace = \"{namespace}\"\n{rest}").unwrap();
        };
        object("[[http_route_group]]\nname = \"all\"\nmatches = [{ name = \"all\" }]");
        for service in services {
            let target = match &*service {
                "next" => 8081,
                "shadow" => 8082,
                _ => 8080,
            };
            object(&format!(
                "[[service]]\nname = \"{service}\"\n\
                 ports = [{{ name = \"web\", port = 14001, protocol = \"http\", target_port = {target} }}]"
            ));
            object(&format!(
                "[[traffic_target]]\nname = \"{service}\"\ndestination = {{ name = \"{service}\" }}\n\
                 sources = [{{ name = \"buyer\", namespace = \"default\" }}]\n\
                 rules = [{{ kind = \"HTTPRouteGroup\", name = \"all\" }}]"
            ));
        }
    }
    policy
}

/// An HTTP route that says this setting for its level. It is about `about`.
fn rule(namespace: &str, name: &str, about: &str, level: Level, setting: Setting) -> String {
    let key = setting.key(level);
    format!("[[http_route]]\nnamespace = \"{namespace}\"\nname = \"{name}\"\n{about}\n{key}\n")
}

/// What is said of routes, services and namespaces, whatever is said of what is farther.
fn near() -> String {
    let mut policy = format!(
        "[[retry]]\nname = \"again\"\nsource = {{ name = \"buyer\" }}\ndestinations = [{{ name = \"again\" }}, \
         {{ name = \"again\", namespace = \"plain\" }}, {{ name = \"asked\", namespace = \"plain\" }}]\n\
         retry_policy = {{ retry_on = \"503\", num_retries = {}, retry_backoff_base_interval = \"1ms\" }}\n",
        Level::Retry.retries()
    );
    for setting in ALL {
        let name = setting.name();
        for namespace in ["default", "plain"] {
            let path = setting.path();
            write!(
                policy,
                "[[http_route_group]]\nnamespace = \"{namespace}\"\nname = \"{name}\"\n\
                 matches = [{{ name = \"it\", path_regex = \"{path}(/|$)\" }}]\n"
            )
            .unwrap();
        }
        for (namespace, service) in [("default", "store"), ("plain", "whole"), ("plain", "asked")] {
            let about = format!(
                "service = \"{service}\"\nmatches = [{{ kind = \"HTTPRouteGroup\", name = \"{name}\" }}]"
            );
            let route = format!("{service}-{name}");
            policy += &rule(namespace, &route, &about, Level::Route, setting);
        }
        let about = format!("service = \"s-{name}\"");
        policy += &rule("default", &format!("s-{name}"), &about, Level::Service, setting);
        policy += &rule(&format!("n-{name}"), "here", "", Level::Namespace, setting);
    }
    policy
}

struct Market {
    mesh: Mesh,
    buyer: Envoy,
    server: Envoy,
    store: App,
    next: App,
    shadow: App,
    /// How many requests its sidecar has delayed.
    delayed: AtomicU64,
    /// How many calls of the shadow have not come to it, before it was there.
    lost: u64,
}

/// Of the listener by which is asked, and not of that of the load.
const DELAYS: &str = "http.outbound.fault.delays_injected";
const COPIES: &str = "cluster.default/shadow|14001.upstream_rq_total";
const COPIES_TO_COME: &str = "cluster.default/shadow|14001.upstream_rq_pending_active";

impl Market {
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let mesh = Mesh::start(&programs, &[("services.toml", &places())]).await;
        let app = async |name, port| App::http1(name, mesh.loopback().socket(21, port)).await;
        let (store, next) = (app("store", 8080).await, app("next", 8081).await);
        let shadow = app("shadow", 8082).await;
        let names = services().into_iter().flat_map(|(namespace, services)| {
            services.into_iter().map(move |service| (namespace.clone(), service))
        });
        let names: Vec<_> = names.collect();
        let server =
            names.iter().fold(ProxyOptions::new("default/store", 21), |server, name| {
                match format!("{}/{}", name.0, name.1) {
                    first if first == "default/store" => server,
                    other => server.also(&other),
                }
            });
        let server = mesh.envoy(&server).await;
        let buyer = ProxyOptions::new("default/buyer", 11).upstream("default/store=14001");
        let buyer = mesh.envoy(&buyer).await;
        for (namespace, service) in &names {
            let host = format!("{service}.{namespace}:14001");
            eventually(&format!("{host} to answer"), async || {
                expect(&get_once(buyer.socket(15080), "/", &[("host", &host)]).await?, 200)
            })
            .await;
        }
        let lost = buyer.stat(COPIES).await - shadow.requests();
        mesh.write_policy("near.toml", &near());
        Some(Self { mesh, buyer, server, store, next, shadow, delayed: AtomicU64::new(0), lost })
    }

    /// How many requests the buyer's sidecar has delayed, once all copies that it has ever made have come to the
    /// shadow.
    ///
    /// It makes a copy before the answer is there, so after an answer none can come late.
    async fn settled(&self) -> u64 {
        let filter = [DELAYS, COPIES, COPIES_TO_COME]
            .map(|name| name.replace('.', "\\.").replace('|', "\\|"))
            .join("|");
        eventually("all copies to have arrived", async || {
            // (First what has come, so that nothing that is made meanwhile stands for something that has not.)
            let arrived = self.shadow.requests() + self.lost;
            let stats = self.buyer.stats(&format!("^(?:{filter})$")).await;
            let stat = |name: &str| stats.get(name).copied();
            let made = stat(COPIES).zip(stat(COPIES_TO_COME)).map(|(made, waiting)| made + waiting);
            anyhow::ensure!(made == Some(arrived), "{arrived} of {made:?}");
            // (There is no such number before the first delay.)
            anyhow::Ok(stat(DELAYS).unwrap_or_default())
        })
        .await
    }

    /// What becomes of a request that every application refuses and whose caller would like it to be tried again.
    async fn ask(&self, host: &str, path: &str) -> anyhow::Result<Outcome> {
        let name = request_name();
        let mut connection = Http1Connection::connect(self.buyer.socket(15080)).await?;
        let wish = WISH.to_string();
        let headers = [
            ("host", host),
            ("x-ask", &name),
            ("x-answer", "503"),
            ("x-envoy-retry-on", "5xx"),
            ("x-envoy-max-retries", &wish),
        ];
        let response = connection.request(Method::GET, path, &headers).await?;
        let delays = self.settled().await;
        let delayed = delays - self.delayed.swap(delays, Ordering::Relaxed);
        let app = response.header("x-app").map(str::to_owned);
        let seen = app.is_some().then(|| response.json());
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        Ok(Outcome {
            status: response.status.as_u16(),
            path: seen.as_ref().and_then(|seen| text(&seen["path"])),
            said: seen.as_ref().and_then(|seen| text(seen.pointer("/headers/x-said")?)),
            told: response.header("x-told").map(str::to_owned),
            location: response.header("location").map(str::to_owned),
            app,
            tries: self.store.asked(&name) + self.next.asked(&name),
            copies: self.shadow.asked(&name),
            delayed,
        })
    }

    /// Waits until such a request comes to what the model says.
    async fn comes_to(&self, host: &str, path: &str, expected: &Outcome, what: &str) {
        eventually(what, async || {
            let outcome = self.ask(&format!("{host}:14001"), path).await?;
            anyhow::ensure!(outcome == *expected, "{outcome:?} in place of {expected:?}");
            anyhow::Ok(())
        })
        .await;
    }

    /// The same of what these levels say.
    async fn holds(&self, host: &str, path: &str, said: &[(Level, Setting)]) {
        self.comes_to(host, path, &model(path, said), &format!("{host}{path}: {said:?}")).await;
    }

    /// How many requests of the load have come to applications that answer it.
    fn unnamed(&self) -> u64 {
        self.store.unnamed() + self.next.unnamed()
    }

    /// Load that all settings of the mesh and of the namespace are about as well.
    fn load(&self) -> Load {
        Load::start(self.buyer.socket(14001), "store", "/load")
    }

    /// Each request of the load was answered once, as one of its settings says, and came once to the application
    /// if it was not answered before.
    #[expect(clippy::print_stderr, reason = "the figures belong to the test's report")]
    async fn assert_nothing_broke(&self, load: Load, before: u64) {
        let report = load.finish().await;
        eprintln!("{} requests in {:?}: {:?}", report.requests, report.duration, report.by_status);
        report.assert_answered_with(&[Timeout, Abort, Redirect].map(of_load));
        assert_eq!(self.unnamed() - before, report.answers(StatusCode::OK));
        for envoy in [&self.server, &self.buyer] {
            envoy.assert_calm().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pair_of_settings_comes_to_what_the_reference_says() {
    use Level::{Mesh, Namespace, Retry, Route, Service};
    let Some(market) = Market::open().await else { return };
    let before = market.unnamed();
    let load = market.load();
    for far in ALL {
        let of_mesh = rule("default", "mesh", "scope = \"mesh\"", Mesh, far);
        market.mesh.write_policy("far.toml", &of_mesh);
        market.holds("bare", "/none", &[(Mesh, far)]).await;
        load.sees(of_load(far)).await;
        market.holds("again", "/none", &[(Retry, Retries), (Mesh, far)]).await;
        for near in ALL {
            let (name, path) = (near.name(), near.path());
            market.holds("store", &path, &[(Route, near), (Mesh, far)]).await;
            market.holds(&format!("s-{name}"), "/none", &[(Service, near), (Mesh, far)]).await;
            let of_namespace = [(Namespace, near), (Mesh, far)];
            market.holds(&format!("store.n-{name}"), "/none", &of_namespace).await;
            let three = [(Route, near), (Retry, Retries), (Mesh, far)];
            market.holds("asked.plain", &path, &three).await;
        }
        // The same nearer: of the namespace, and, elsewhere, of the service.
        let mut policy = rule("default", "here", "", Namespace, far);
        for service in ["whole", "again"] {
            let about = format!("service = \"{service}\"");
            policy += &rule("plain", service, &about, Service, far);
        }
        market.mesh.write_policy("far.toml", &policy);
        market.holds("bare", "/none", &[(Namespace, far)]).await;
        load.sees(of_load(far)).await;
        market.holds("again", "/none", &[(Retry, Retries), (Namespace, far)]).await;
        market.holds("whole.plain", "/none", &[(Service, far)]).await;
        market.holds("again.plain", "/none", &[(Retry, Retries), (Service, far)]).await;
        for near in ALL {
            let (name, path) = (near.name(), near.path());
            market.holds("store", &path, &[(Route, near), (Namespace, far)]).await;
            market.holds(&format!("s-{name}"), "/none", &[(Service, near), (Namespace, far)]).await;
            market.holds("whole.plain", &path, &[(Route, near), (Service, far)]).await;
        }
    }
    // And nothing of it is left.
    market.mesh.write_policy("far.toml", "");
    market.holds("bare", "/none", &[]).await;
    market.holds("whole.plain", "/none", &[]).await;
    load.sees(StatusCode::OK).await;
    market.assert_nothing_broke(load, before).await;
}

/// A split decides where a request goes, and HTTP routes how.
#[tokio::test(flavor = "multi_thread")]
async fn every_setting_holds_for_a_canary_as_well() {
    let Some(market) = Market::open().await else { return };
    let before = market.unnamed();
    let load = market.load();
    let split = "[[traffic_split]]\nname = \"canary\"\nservice = \"store\"\n\
                 backends = [{ service = \"next\", weight = 1 }]\n";
    market.mesh.write_policy("far.toml", split);
    eventually("the canary", async || {
        let asked = market.ask("store:14001", "/none").await?;
        anyhow::ensure!(asked.app.as_deref() == Some("next"), "{asked:?}");
        anyhow::Ok(())
    })
    .await;
    for near in ALL {
        let mut expected = model(&near.path(), &[(Level::Route, near)]);
        expected.app = expected.app.map(|_| "next".to_owned());
        market.comes_to("store", &near.path(), &expected, &format!("{near:?}, and a split")).await;
    }
    market.mesh.write_policy("far.toml", "");
    market.holds("store", "/none", &[]).await;
    market.assert_nothing_broke(load, before).await;
}
