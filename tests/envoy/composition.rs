//! What several settings come to together: each pair of them on real Envoys, one said of a route and the other
//! of the mesh, and the other way about.
//!
//! What a request comes to is worked out by a model of what the reference says, and compared with what
//! happens.

use http::Method;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Mesh, Programs, ProxyOptions, eventually, get_once,
};

use crate::bookstore::expect;

const SERVICES: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[service]]
name = "next"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8081 }]

[[service]]
name = "shadow"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8082 }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "all"
matches = [{ name = "all" }]

[[traffic_target]]
name = "all"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]

[[traffic_target]]
name = "next"
destination = { name = "next" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]

[[traffic_target]]
name = "shadow"
destination = { name = "shadow" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "all" }]
"#;

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

impl Setting {
    fn path(self) -> String {
        format!("/{self:?}").to_lowercase()
    }

    /// What an HTTP route says.
    fn key(self, place: &str) -> String {
        match self {
            // No test waits for so long: what a caller may say is shorter.
            Timeout => "timeout = \"60s\"".to_owned(),
            Retries => "retries = { retry_on = [\"503\"], num_retries = 2, backoff_base_interval = \"1ms\" }".to_owned(),
            Delay => "fault = { delay = { duration = \"1ms\", percent = 100 } }".to_owned(),
            Abort => "fault = { abort = { status = 418, percent = 100 } }".to_owned(),
            RequestHeaders => format!("request_headers = {{ set = {{ x-said = \"{place}\" }} }}"),
            ResponseHeaders => format!("response_headers = {{ set = {{ x-told = \"{place}\" }} }}"),
            Rewrite => format!("rewrite = {{ path_prefix = {{ from = \"/\", to = \"/{place}\" }} }}"),
            Redirect => "redirect = { status = 307, host = \"elsewhere.example\" }".to_owned(),
            Mirror => "mirror = { service = \"shadow\" }".to_owned(),
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
    /// How many copies there were.
    copies: u64,
    /// How many were delayed.
    delayed: u64,
}

/// What a request comes to of which the nearer setting is said by a route and the farther by the mesh.
fn model(near: Option<Setting>, far: Option<Setting>) -> Outcome {
    let of_route = near.map(|one| (one, "route"));
    let is_taken = |one: &Setting| near.is_none_or(|near| !near.is_the_same_as(*one));
    let of_mesh = far.filter(is_taken).map(|one| (one, "mesh"));
    let said: Vec<_> = of_route.into_iter().chain(of_mesh).collect();
    let place = |setting| said.iter().find(|(one, _)| *one == setting).map(|(_, place)| *place);
    let has = |setting| place(setting).is_some();
    let mut outcome = Outcome {
        status: 503,
        app: Some("store".to_owned()),
        path: Some(near.map_or_else(|| "/none".to_owned(), Setting::path)),
        tries: 1,
        said: place(RequestHeaders).map(str::to_owned),
        told: place(ResponseHeaders).map(str::to_owned),
        copies: u64::from(has(Mirror)),
        delayed: u64::from(has(Delay)),
    };
    if let Some(place) = place(Rewrite) {
        outcome.path = outcome.path.map(|path| format!("/{place}{path}"));
    }
    // The caller asks for three retries, and policy for two.
    outcome.tries += match (has(Retries), has(Overrides)) {
        (_, true) => 3,
        (true, false) => 2,
        (false, false) => 0,
    };
    // Nothing of what is answered by the caller's own sidecar comes to anybody else.
    let own = |status| Outcome {
        status,
        app: None,
        path: None,
        tries: 0,
        said: None,
        copies: 0,
        told: outcome.told.clone(),
        delayed: outcome.delayed,
    };
    if has(Abort) {
        own(418)
    } else if has(Redirect) {
        own(307)
    } else {
        outcome
    }
}

struct Market {
    mesh: Mesh,
    buyer: Envoy,
    servers: Vec<Envoy>,
    store: App,
    next: App,
    shadow: App,
}

impl Market {
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let policy = [("services.toml", SERVICES), ("settings.toml", "")];
        let mesh = Mesh::start(&programs, &policy).await;
        let app = async |name, port| App::http1(name, mesh.loopback().socket(21, port)).await;
        let (store, next) = (app("store", 8080).await, app("next", 8081).await);
        let shadow = app("shadow", 8082).await;
        let server = ProxyOptions::new("default/store", 21).also("default/next");
        let servers = vec![mesh.envoy(&server.also("default/shadow")).await];
        let buyer = ProxyOptions::new("default/buyer", 11)
            .upstream("default/store=14001")
            .upstream("default/next=14002")
            .upstream("default/shadow=14003");
        let buyer = mesh.envoy(&buyer).await;
        for port in [14001, 14002, 14003] {
            eventually("all three to answer", async || {
                expect(&get_once(buyer.socket(port), "/", &[]).await?, 200)
            })
            .await;
        }
        Some(Self { mesh, buyer, servers, store, next, shadow })
    }

    /// Puts a policy in force: what the mesh says, and what each of these routes says.
    fn say(&self, far: Option<Setting>, near: &[Setting], other: &str) {
        let mut policy = String::new();
        let mut rule = |text: &str| policy.push_str(text);
        if let Some(far) = far {
            let key = far.key("mesh");
            rule(&format!("[[http_route]]\nname = \"mesh\"\nscope = \"mesh\"\n{key}\n"));
        }
        for one in near {
            let path = one.path();
            let name = path.trim_start_matches('/');
            rule(&format!(
                "[[http_route_group]]\nname = \"{name}\"\nmatches = [{{ name = \"it\", path_regex = \"{path}(/|$)\" }}]\n"
            ));
            rule(&format!(
                "[[http_route]]\nname = \"{name}\"\nservice = \"store\"\nmatches = [{{ kind = \"HTTPRouteGroup\", name = \"{name}\" }}]\n{}\n",
                one.key("route")
            ));
        }
        rule(other);
        self.mesh.write_policy("settings.toml", &policy);
    }

    /// What becomes of a request that every application refuses and whose caller would like three retries.
    async fn ask(&self, path: &str) -> anyhow::Result<Outcome> {
        let apps = [&self.store, &self.next];
        let counts = || apps.iter().map(|app| app.requests()).sum::<u64>();
        let delays = async || self.buyer.sum(r"fault\.delays_injected$").await;
        let (tries, copies, delayed) = (counts(), self.shadow.requests(), delays().await);
        let mut connection = Http1Connection::connect(self.buyer.socket(14001)).await?;
        let headers = [
            ("host", "store"),
            ("x-answer", "503"),
            ("x-envoy-retry-on", "5xx"),
            ("x-envoy-max-retries", "3"),
        ];
        let response = connection.request(Method::GET, path, &headers).await?;
        let app = response.header("x-app").map(str::to_owned);
        let seen = app.is_some().then(|| response.json());
        let text = |value: &serde_json::Value| value.as_str().map(str::to_owned);
        // (A copy that is late is waited for, by asking again; one that there should not be is seen only where it
        // is not late. That those who may not be called get none is held in `http_route_messages`.)
        Ok(Outcome {
            status: response.status.as_u16(),
            path: seen.as_ref().and_then(|seen| text(&seen["path"])),
            said: seen.as_ref().and_then(|seen| text(seen.pointer("/headers/x-said")?)),
            told: response.header("x-told").map(str::to_owned),
            app,
            tries: counts() - tries,
            copies: self.shadow.requests() - copies,
            delayed: delays().await - delayed,
        })
    }

    /// Waits until such a request comes to what the model says.
    async fn comes_to(&self, path: &str, expected: &Outcome, what: &str) {
        eventually(what, async || {
            let outcome = self.ask(path).await?;
            anyhow::ensure!(outcome == *expected, "{outcome:?} in place of {expected:?}");
            anyhow::Ok(())
        })
        .await;
    }

    async fn assert_calm(&self) {
        for envoy in self.servers.iter().chain([&self.buyer]) {
            envoy.assert_calm().await;
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn every_pair_of_settings_comes_to_what_the_reference_says() {
    let Some(market) = Market::open().await else { return };
    for far in ALL {
        market.say(Some(far), &ALL, "");
        market.comes_to("/none", &model(None, Some(far)), &format!("{far:?} of the mesh")).await;
        for near in ALL {
            let expected = model(Some(near), Some(far));
            let what = format!("{near:?} of a route, and {far:?} of the mesh");
            market.comes_to(&near.path(), &expected, &what).await;
        }
    }
    market.assert_calm().await;
}

/// A split decides where a request goes, and HTTP routes how.
#[tokio::test(flavor = "multi_thread")]
async fn every_setting_holds_for_a_canary_as_well() {
    let Some(market) = Market::open().await else { return };
    let split = "[[traffic_split]]\nname = \"canary\"\nservice = \"store\"\n\
                 backends = [{ service = \"next\", weight = 1 }]\n";
    market.say(None, &ALL, split);
    for near in ALL {
        let mut expected = model(Some(near), None);
        expected.app = expected.app.map(|_| "next".to_owned());
        market.comes_to(&near.path(), &expected, &format!("{near:?}, and a split")).await;
    }
    market.assert_calm().await;
}
