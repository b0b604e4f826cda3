//! Headers, rewrites, redirects, mirrors and caller overrides of HTTP routes. Each is set, changed
//! and removed under load.

use std::sync::atomic::{AtomicU64, Ordering};

use http::{Method, StatusCode};
use ironmesh_tests::{
    App, Envoy, Http1Connection, Load, LongConnections, Mesh, Programs, ProxyOptions, Response,
    eventually, get_once, request_name,
};

use crate::bookstore::ensure_status;

/// A store that `buyer` may call for `/new/…`, and for any path as `gold`; and a mirror target.
const SERVICES: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[service]]
name = "shadow"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8081 }]

[[service]]
name = "buyer"

[[http_route_group]]
name = "store"
matches = [
  { name = "new", path_regex = "/new(/|$)" },
  { name = "gold", headers = { x-tier = "gold" } },
  { name = "host", headers = { host = "books[.]example" } },
  { name = "search", path_regex = "/new/search" },
  { name = "all" },
]

[[traffic_target]]
name = "store"
destination = { name = "store" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "store", matches = ["new", "gold", "host"] }]
"#;

/// The buyer may call the mirror target without limits.
const SHADOWED: &str = r#"
[[traffic_target]]
name = "shadow"
destination = { name = "shadow" }
sources = [{ name = "buyer" }]
rules = [{ kind = "HTTPRouteGroup", name = "store", matches = ["all"] }]
"#;

struct MessageMesh {
    mesh: Mesh,
    buyer: Envoy,
    server: Envoy,
    store: App,
    shadow: App,
    long_connections: LongConnections,
    /// The number of the store's requests and retries before the load.
    before_load: u64,
    tried_before: u64,
    /// The number of retries of named requests.
    named_retries: AtomicU64,
    /// The number of copies lost before the mirror target existed.
    lost_copies: u64,
}

/// The counters of sent copies, and of those that wait for a connection.
const COPIES: &str = "cluster.default/shadow|14001.upstream_rq_total";
const COPIES_AND_WAITING: &str =
    r"^cluster\.default/shadow\|14001\.upstream_rq_(?:total|pending_active)$";

impl MessageMesh {
    /// Opens the mesh without HTTP routes.
    async fn open() -> Option<Self> {
        let programs = Programs::find()?;
        let policy = [
            ("services.toml", SERVICES),
            ("targets.toml", SHADOWED),
            ("beside.toml", LongConnections::POLICY),
        ];
        let mesh = Mesh::start(&programs, &policy).await;
        let store = App::http1("store", mesh.loopback().socket(21, 8080)).await;
        let shadow = App::http1("shadow", mesh.loopback().socket(21, 8081)).await;
        let long_connections =
            LongConnections::start(|port| mesh.loopback().socket(21, port)).await;
        let server = ProxyOptions::new("default/store", 21).with_service("default/shadow");
        let server = mesh.envoy(&LongConnections::with_services(server)).await;
        let buyer = ProxyOptions::new("default/buyer", 11)
            .upstream("default/store=14001")
            .upstream("default/shadow=14002");
        let buyer = mesh.envoy(&LongConnections::with_upstreams(buyer)).await;
        for (port, path) in [(14001, "/new"), (14002, "/")] {
            eventually("both to answer", async || {
                ensure_status(&get_once(buyer.socket(port), path, &[]).await?, 200)
            })
            .await;
        }
        long_connections.wait_for(&buyer).await;
        let before_load = store.unnamed_requests();
        let tried_before = retries_of(&buyer).await;
        let lost_copies = buyer.stat(COPIES).await - shadow.requests();
        let named_retries = AtomicU64::default();
        Some(Self {
            mesh,
            buyer,
            server,
            store,
            shadow,
            long_connections,
            before_load,
            tried_before,
            named_retries,
            lost_copies,
        })
    }

    /// Starts load on the store through the upstream, with a stream and a connection.
    async fn load(&self, path: &str) -> Load {
        let load = Load::start(self.buyer.socket(14001), "store", path);
        self.long_connections.join(load, &self.buyer).await
    }

    /// Checks the load: each request got one of these statuses, and each 200 came from the store
    /// exactly once. No other request was retried.
    #[expect(clippy::print_stderr, reason = "the figures belong to the test's report")]
    async fn assert_no_failures(&self, load: Load, statuses: &[StatusCode]) {
        let report = load.finish().await;
        let retries = retries_of(&self.buyer).await - self.tried_before;
        let meant = self.named_retries.load(Ordering::Relaxed);
        eprintln!(
            "{} requests in {:?}: {:?}; {} messages, {} lines; retries: {retries}, of the load {}",
            report.requests,
            report.duration,
            report.by_status,
            report.stream_messages,
            report.connection_lines,
            retries.wrapping_sub(meant)
        );
        report.assert_answered_with(statuses);
        self.long_connections.assert_uninterrupted(&report);
        assert_eq!(retries, meant);
        assert_eq!(
            self.store.unnamed_requests() - self.before_load,
            report.answers(StatusCode::OK),
            "tried again"
        );
        for envoy in [&self.buyer, &self.server] {
            envoy.assert_no_update_errors().await;
        }
    }

    /// Waits until all copies made so far have arrived. The buyer's sidecar makes them before the
    /// answer.
    async fn wait_for_copies(&self) {
        // A copy that moves from waiting to sent may be counted twice; the lowest reading counts
        // none twice.
        let mut made = u64::MAX;
        eventually("all copies to have arrived", async || {
            let (arrived, stats) = (
                self.shadow.requests() + self.lost_copies,
                self.buyer.stats(COPIES_AND_WAITING).await,
            );
            made = made.min(stats.values().sum());
            if arrived >= made { Ok(()) } else { Err(format!("{arrived} of {made}")) }
        })
        .await;
    }

    /// Sends this many requests with one name, waits for the expected copies and returns their
    /// number.
    async fn copies(&self, name: &str, count: u32, expected: u64) -> u64 {
        for _ in 0..count {
            ensure_status(&self.get("/old/1", &[("x-request-name", name)]).await, 200).unwrap();
        }
        assert_eq!(self.store.requests_named(name), u64::from(count));
        self.wait_for_copies().await;
        // A copy of the load may arrive first.
        eventually("these copies to have arrived", async || {
            match self.shadow.requests_named(name) {
                count if count >= expected => Ok(count),
                count => Err(count),
            }
        })
        .await
    }

    /// A named request through the upstream.
    async fn get(&self, path: &str, headers: &[(&str, &str)]) -> Response {
        let named = headers.iter().any(|(name, _)| *name == "x-request-name");
        let name: &[_] = if named { &[] } else { &[("x-request-name", "one")] };
        let headers = [headers, name].concat();
        get_once(self.buyer.socket(14001), path, &headers).await.unwrap()
    }

    /// A request by `Host`.
    async fn get_by_host(&self, path: &str) -> Response {
        let mut connection = Http1Connection::connect(self.buyer.socket(15080)).await.unwrap();
        let headers = [("host", "store:14001"), ("x-request-name", "one")];
        connection.request(Method::GET, path, &headers).await.unwrap()
    }

    /// The output of `policy explain` for a request.
    async fn explain(&self, path: &str) -> String {
        let arguments = ["policy", "explain", "--from", "buyer", "--to", "store", "--path", path];
        String::from_utf8(self.mesh.run(&arguments).await.stdout).unwrap()
    }

    fn write(&self, routes: &str) {
        self.mesh.write_policy("routes.toml", routes);
    }
}

/// The number of retries of an Envoy.
async fn retries_of(envoy: &Envoy) -> u64 {
    envoy.sum(r"^cluster\..*\.upstream_rq_retry$").await
}

/// An HTTP route of the store with these keys.
fn route(keys: &str) -> String {
    format!("[[http_route]]\nname = \"store\"\nservice = \"store\"\n{keys}\n")
}

#[tokio::test(flavor = "multi_thread")]
async fn header_rules_set_add_and_remove_as_configured() {
    let routes = route(
        "request_headers = { set = { x-tier = \"gold\", x-literal = '%REQ(:path)% 100%% %' }, \
         add = { x-also = \"mesh\" }, remove = [\"x-secret\", \"user-agent\"] }\n\
         response_headers = { set = { x-served = '%HOSTNAME%' }, add = { x-app = \"mesh\" }, \
         remove = [\"content-type\"] }",
    );
    let Some(setup) = MessageMesh::open().await else { return };
    let load = setup.load("/new/1").await;
    setup.write(&routes);
    let sent = [
        ("x-tier", "iron"),
        ("x-also", "caller"),
        ("x-secret", "me"),
        ("user-agent", "test"),
        ("x-kept", "%REQ(:path)%"),
    ];
    // The server allows it because of the header that arrives.
    let answer = eventually("the headers to be changed", async || {
        let answer = setup.get("/old", &sent).await;
        ensure_status(&answer, 200)?;
        anyhow::Ok(answer)
    })
    .await;
    let arrived = answer.json()["headers"].clone();
    assert_eq!(arrived["x-tier"], "gold");
    assert_eq!(arrived["x-literal"], "%REQ(:path)% 100%% %");
    assert_eq!(arrived["x-kept"], "%REQ(:path)%");
    assert!(arrived["x-also"].as_str().unwrap().contains("mesh"), "{arrived}");
    assert!(arrived["x-secret"].is_null() && arrived["user-agent"].is_null(), "{arrived}");
    assert_eq!(answer.header("x-served"), Some("%HOSTNAME%"));
    assert_eq!(answer.header("content-type"), None);
    let apps: Vec<_> = answer.headers.get_all("x-app").iter().collect();
    assert_eq!(apps, ["store", "mesh"]);
    assert!(setup.explain("/old").await.starts_with("allowed: "));
    // Answers of the sidecars themselves get the response headers as well.
    let by_host = setup.get_by_host("/old").await;
    assert_eq!((by_host.status.as_u16(), by_host.header("x-served")), (200, Some("%HOSTNAME%")));
    setup.write("");
    eventually("the server to deny unchanged requests", async || {
        ensure_status(&setup.get("/old", &sent).await, 403)
    })
    .await;
    assert!(setup.explain("/old").await.starts_with("denied: "));
    setup.assert_no_failures(load, &[StatusCode::OK]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn server_authorizes_the_rewritten_path_and_host() {
    let prefix = route("rewrite = { path_prefix = { from = \"/old/\", to = \"/new\" } }");
    let Some(setup) = MessageMesh::open().await else { return };
    let load = setup.load("/new/1").await;
    setup.write(&prefix);
    eventually("the new path to arrive", async || {
        ensure_status(&setup.get("/old", &[]).await, 200)
    })
    .await;
    for (path, arrives) in [
        ("/old", Some("/new")),
        ("/old/", Some("/new/")),
        ("/old/1/old?x=/old&y=%2f", Some("/new/1/old?x=/old&y=%2f")),
        ("//old/./a/../1", Some("/new/1")),
        ("/new/1", Some("/new/1")),
        ("/older", None),
        ("/x/old", None),
    ] {
        for answer in [setup.get(path, &[]).await, setup.get_by_host(path).await] {
            let status = if arrives.is_some() { 200 } else { 403 };
            ensure_status(&answer, status).unwrap();
            if let Some(arrives) = arrives {
                assert_eq!(answer.json()["path"], arrives, "{path}");
            }
        }
        let verdict = setup.explain(path).await;
        let expected = if arrives.is_some() { "allowed: " } else { "denied: " };
        assert!(verdict.starts_with(expected), "{path}: {verdict}");
    }
    // An allowed request is denied if its rewritten path is not.
    setup.write(&route("rewrite = { path_prefix = { from = \"/new\", to = \"/\" } }"));
    eventually("another path to arrive", async || {
        ensure_status(&setup.get("/new/1", &[]).await, 403)
    })
    .await;
    load.wait_for_status(StatusCode::FORBIDDEN).await;
    let gold = [("x-tier", "gold")];
    for (path, arrives) in [("/new", "/"), ("/new/", "/"), ("/new/1?x", "/1?x")] {
        assert_eq!(setup.get(path, &gold).await.json()["path"], arrives, "{path}");
    }
    assert!(setup.explain("/new/1").await.starts_with("denied: "));
    // A regular expression, applied once at the start of the path.
    setup.write(&route(
        "rewrite = { path_regex = \"/(a|b)/v([0-9]+)\", substitution = '/new/\\2/\\1\\\\' }",
    ));
    eventually("the expression", async || {
        ensure_status(&setup.get("/a/v12/a/v12", &[]).await, 200)
    })
    .await;
    // A backslash becomes a slash by normalization.
    for (path, arrives) in [("/a/v12/a/v12?q", "/new/12/a/a/v12?q"), ("/b/v1", "/new/1/b/")] {
        assert_eq!(setup.get(path, &[]).await.json()["path"], arrives, "{path}");
        assert!(setup.explain(path).await.starts_with("allowed: "), "{path}");
    }
    ensure_status(&setup.get("/x/a/v1", &[]).await, 403).unwrap();
    load.wait_for_status(StatusCode::OK).await;
    // A rewritten host.
    setup.write(&route("rewrite = { host = \"books.example:80\" }"));
    eventually("another host to arrive", async || {
        ensure_status(&setup.get("/old", &[]).await, 200)
    })
    .await;
    for answer in [setup.get("/old", &[]).await, setup.get_by_host("/old").await] {
        assert_eq!(answer.json()["headers"]["host"], "books.example:80");
    }
    assert!(setup.explain("/old").await.starts_with("allowed: "));
    setup.write("");
    eventually("the old path to arrive", async || {
        ensure_status(&setup.get("/old", &[]).await, 403)
    })
    .await;
    setup.assert_no_failures(load, &[StatusCode::OK, StatusCode::FORBIDDEN]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn redirected_request_reaches_no_application() {
    let of_search = "[[http_route]]\nname = \"search\"\nservice = \"store\"\n\
        matches = [{ kind = \"HTTPRouteGroup\", name = \"store\", matches = [\"search\"] }]\n";
    let redirect = |redirect: &str| {
        format!(
            "{of_search}response_headers = {{ set = {{ x-moved = \"yes\" }} }}\nredirect = {redirect}\n"
        )
    };
    let Some(setup) = MessageMesh::open().await else { return };
    let load = setup.load("/new/search/a").await;
    load.wait_for_status(StatusCode::OK).await;
    let first = redirect("{ status = 301, host = \"books.example\", path = \"/moved\" }");
    setup.write(&first);
    load.wait_for_status(StatusCode::MOVED_PERMANENTLY).await;
    let before_load = setup.store.requests();
    for (to, status, location) in [
        (
            "{ status = 301, host = \"books.example\", path = \"/moved\" }",
            301,
            "http://books.example/moved?q=1",
        ),
        ("{ status = 302, scheme = \"https\" }", 302, "https://store:14001/new/search/a?q=1"),
        (
            "{ status = 303, port = 8443, scheme = \"https\" }",
            303,
            "https://store:8443/new/search/a?q=1",
        ),
        (
            "{ status = 307, path_prefix = { from = \"/new\", to = \"/\" } }",
            307,
            "http://store:14001/search/a?q=1",
        ),
        (
            "{ status = 308, host = \"b.example\", port = 81, path_prefix = { from = \"/new/search\", to = \"/s%20\" } }",
            308,
            "http://b.example:81/s%20/a?q=1",
        ),
    ] {
        setup.write(&redirect(to));
        eventually(to, async || {
            let answer = setup.get("/new/search/a?q=1", &[("host", "store:14001")]).await;
            let reported = (answer.status.as_u16(), answer.header("location").map(str::to_owned));
            if reported == (status, Some(location.to_owned())) {
                Ok(())
            } else {
                Err(format!("{reported:?}"))
            }
        })
        .await;
        let answer = setup.get_by_host("/new/search/a").await;
        assert_eq!((answer.status.as_u16(), answer.header("x-moved")), (status, Some("yes")));
        let verdict = setup.explain("/new/search/a").await;
        assert!(verdict.starts_with("redirected: "), "{verdict}");
        load.wait_for_status(StatusCode::from_u16(status).unwrap()).await;
    }
    assert_eq!(setup.store.requests(), before_load);
    ensure_status(&setup.get("/new/1", &[]).await, 200).unwrap();
    setup.write("");
    load.wait_for_status(StatusCode::OK).await;
    let statuses = [200, 301, 302, 303, 307, 308].map(|one| StatusCode::from_u16(one).unwrap());
    setup.assert_no_failures(load, &statuses).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn mirrored_requests_reach_only_granted_services() {
    let mirror = |percent: &str| {
        route(&format!(
            "mirror = {{ service = \"shadow\", percent = {percent} }}\ntimeout = \"20s\"\n\
             rewrite = {{ path_prefix = {{ from = \"/old\", to = \"/new\" }} }}"
        ))
    };
    let Some(setup) = MessageMesh::open().await else { return };
    let load = setup.load("/new/1").await;
    let clusters = || async { setup.buyer.config_dump().await.to_string() };
    let mirrors = "\"request_mirror_policies\"";
    let wait_for = async |text: &str, is_there: bool| {
        eventually(&format!("{text} to be there: {is_there}"), async || {
            let has = clusters().await.contains(text);
            if has == is_there { Ok(()) } else { Err(has) }
        })
        .await;
    };
    setup.write(&mirror("100"));
    wait_for(mirrors, true).await;
    // The caller gets the store's answer.
    let answer = setup.get("/old/1", &[]).await;
    assert_eq!((answer.status.as_u16(), answer.header("x-app")), (200, Some("store")));
    assert_eq!(setup.copies("first", 5, 5).await, 5);
    // The caller does not wait for the mirror target.
    let held = setup.shadow.hold().await;
    assert_eq!(setup.copies("held", 5, 5).await, 5);
    drop(held);
    // A share of the requests: neither all nor none.
    setup.write(&mirror("50.0"));
    wait_for("\"numerator\":500000", true).await;
    let copies = setup.copies("some", 100, 0).await;
    assert!((5..=95).contains(&copies), "{copies} of 100");
    // Without the setting no copies are made, although the mirror target may be called.
    setup.write(&mirror("100").replace("mirror =", "# mirror ="));
    wait_for(mirrors, false).await;
    assert_eq!(setup.copies("none", 20, 0).await, 0);
    // Without access to the mirror target no copies are made: they end with the cluster, and no
    // reference dangles.
    setup.write(&mirror("100"));
    wait_for(mirrors, true).await;
    setup.mesh.remove_policy("targets.toml");
    eventually("no more copies", async || {
        let dump = clusters().await;
        let left = [mirrors, "\"default/shadow|14001\""].map(|text| dump.contains(text));
        if left == [false; 2] { Ok(()) } else { Err(format!("{left:?}")) }
    })
    .await;
    for _ in 0..5 {
        ensure_status(&setup.get("/old/1", &[("x-request-name", "withdrawn")]).await, 200).unwrap();
    }
    let reported = setup.explain("/old/1").await;
    assert!(
        reported.contains("but not of this caller: it may not call default/shadow"),
        "{reported}"
    );
    // With access, copies are made again.
    setup.mesh.write_policy("targets.toml", SHADOWED);
    eventually("copies again", async || {
        ensure_status(&setup.get("/old/1", &[("x-request-name", "again")]).await, 200)?;
        anyhow::ensure!(setup.shadow.requests_named("again") > 0, "none");
        anyhow::Ok(())
    })
    .await;
    setup.assert_no_failures(load, &[StatusCode::OK]).await;
    // No more copies are made. Once all are answered, any late one would have been counted.
    eventually("all copies to be answered", async || {
        let active = r"^cluster\.default/shadow\|14001\.upstream_rq_(?:pending_)?active$";
        match setup.buyer.sum(active).await {
            0 => Ok(()),
            active => Err(active),
        }
    })
    .await;
    let copies =
        ["first", "held", "none", "withdrawn"].map(|name| setup.shadow.requests_named(name));
    assert_eq!(copies, [5, 5, 0, 0]);
}

#[tokio::test(flavor = "multi_thread")]
async fn caller_overrides_timeout_and_retries_only_if_allowed() {
    let of_search = |keys: &str| {
        format!(
            "[[http_route]]\nname = \"search\"\nservice = \"store\"\n\
             matches = [{{ kind = \"HTTPRouteGroup\", name = \"store\", matches = [\"search\"] }}]\n{keys}\n"
        )
    };
    let may = of_search("allow_override_headers = true");
    let Some(setup) = MessageMesh::open().await else { return };
    let load = setup.load("/new/1").await;
    setup.write(&(route("retries = { num_retries = 0 }") + &may));
    let words = [
        ("x-envoy-max-retries", "3"),
        ("x-envoy-retry-on", "retriable-status-codes"),
        ("x-envoy-retriable-status-codes", "503"),
        ("x-envoy-upstream-rq-timeout-alt-response", "1"),
        ("x-envoy-hedge-on-per-try-timeout", "true"),
        ("x-envoy-force-trace", "true"),
        ("x-ironmesh-override-max-retries", "5"),
        ("x-ironmesh-override-other", "5"),
        ("x-answer", "503"),
    ];
    let tries = async |path: &str, words: &[(&str, &str)]| {
        let name = request_name();
        let headers = [words, &[("x-request-name", &name)]].concat();
        let answer = get_once(setup.buyer.socket(14001), path, &headers).await.unwrap();
        let text = answer.text();
        assert!(!text.contains("x-ironmesh-") && !text.contains("\"x-envoy-"), "{text}");
        let tries = setup.store.requests_named(&name);
        setup.named_retries.fetch_add(tries - 1, Ordering::Relaxed);
        (tries, answer.status.as_u16())
    };
    eventually("the caller's headers to apply", async || {
        match tries("/new/search", &words).await {
            (4, 503) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    // Headers that callers cannot know have no effect.
    assert_eq!(tries("/new/search", &words[3..]).await, (1, 503));
    assert_eq!(tries("/new/1", &words).await, (1, 503));
    // Long enough for a try to reach the store on a busy machine, where it is counted.
    let short = [("x-envoy-upstream-rq-timeout-ms", "500"), ("x-answer", "never")];
    assert_eq!(tries("/new/search", &short).await, (1, 504));
    // The server's sidecar does not limit the time of such a caller to another value.
    setup.write(&(route("timeout = \"1s\"\nretries = { num_retries = 0 }") + &may));
    // A request that no sidecar ends in time would take much longer.
    eventually("the store's own time", async || {
        let dump = setup.buyer.config_dump().await.to_string();
        if dump.contains("\"timeout\":\"1s\"") { Ok(()) } else { Err("not yet") }
    })
    .await;
    assert_eq!(tries("/new/1", &short[1..]).await, (1, 504));
    let long = [
        ("x-envoy-upstream-rq-timeout-ms", "60000"),
        ("x-envoy-max-retries", "2"),
        ("x-answer", "never"),
    ];
    assert_eq!(tries("/new/1", &long).await, (1, 504));
    let each = [
        ("x-envoy-upstream-rq-timeout-ms", "60000"),
        ("x-envoy-upstream-rq-per-try-timeout-ms", "500"),
        ("x-envoy-retry-on", "gateway-error"),
        ("x-envoy-max-retries", "2"),
        ("x-answer", "never"),
    ];
    assert_eq!(tries("/new/search", &each).await, (3, 504));
    // Removal ends no connection.
    let mut connection = Http1Connection::connect(setup.buyer.socket(14001)).await.unwrap();
    let mut ask = async || {
        let name = request_name();
        let headers = [&[("host", "store"), ("x-request-name", &*name)], &words[..]].concat();
        connection.request(Method::GET, "/new/search", &headers).await.unwrap();
        let tries = setup.store.requests_named(&name);
        setup.named_retries.fetch_add(tries - 1, Ordering::Relaxed);
        tries
    };
    assert_eq!(ask().await, 4);
    setup.write(
        &(route("retries = { num_retries = 0 }") + &of_search("allow_override_headers = false")),
    );
    eventually("the caller's headers to be ignored", async || match ask().await {
        1 => Ok(()),
        other => Err(other),
    })
    .await;
    assert!(!connection.is_closed());
    setup.assert_no_failures(load, &[StatusCode::OK]).await;
}
