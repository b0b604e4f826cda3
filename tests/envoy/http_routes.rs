//! Timeouts, retries and faults of HTTP routes: the most specific object wins.

use http::{Method, StatusCode};
use ironmesh_tests::xds::ProxyClient;
use ironmesh_tests::{
    App, Envoy, Http1Connection, Load, Mesh, Programs, ProxyOptions, Response, eventually,
    request_name, tls,
};

use crate::bookstore::ensure_status;
use crate::split_mesh::SplitMesh;

const SERVICES: &str = r#"
[[service]]
name = "store"
ports = [{ name = "web", port = 14001, protocol = "http", target_port = 8080 }]

[[service]]
name = "buyer"

[[service]]
name = "auditor"

[[http_route_group]]
name = "store"
matches = [
  { name = "all" },
  { name = "search", path_regex = "/search" },
  { name = "marked", headers = { x-mark = "yes|no" } },
]

[[traffic_target]]
name = "buyers"
destination = { name = "store" }
sources = [{ name = "buyer" }, { name = "auditor" }]
rules = [{ kind = "HTTPRouteGroup", name = "store", matches = ["all"] }]
"#;

/// A store and two callers.
struct HttpRouteMesh {
    mesh: Mesh,
    buyer: Envoy,
    auditor: Envoy,
    server: Envoy,
    app: App,
}

impl HttpRouteMesh {
    async fn open(treatments: &str) -> Option<Self> {
        let programs = Programs::find()?;
        let policy = [("services.toml", SERVICES), ("treatments.toml", treatments)];
        let mesh = Mesh::start(&programs, &policy).await;
        let app = App::http1("store", mesh.loopback().socket(21, 8080)).await;
        let server = mesh.envoy(&ProxyOptions::new("default/store", 21)).await;
        let caller = |name: &str, host| {
            ProxyOptions::new(&format!("default/{name}"), host).upstream("default/store=14001")
        };
        let buyer = mesh.envoy(&caller("buyer", 11)).await;
        let auditor = mesh.envoy(&caller("auditor", 12)).await;
        let setup = Self { mesh, buyer, auditor, server, app };
        for envoy in [&setup.buyer, &setup.auditor] {
            eventually("the store to answer", async || {
                ensure_status(&request(envoy, "/", "200").await?, 200)
            })
            .await;
        }
        Some(setup)
    }

    /// The number of times the application receives such a request, and its final status.
    async fn tries(&self, envoy: &Envoy, path: &str, answer: &str) -> (u64, u16) {
        let (tries, response) = self.call(envoy, path, &[("x-answer", answer)]).await;
        (tries, response.status.as_u16())
    }

    /// The number of tries and the response of a request with these headers.
    async fn call(&self, envoy: &Envoy, path: &str, headers: &[(&str, &str)]) -> (u64, Response) {
        let name = request_name();
        let mut connection = Http1Connection::connect(envoy.socket(14001)).await.unwrap();
        let headers = [&[("host", "store"), ("x-request-name", &name)], headers].concat();
        let response = connection.request(Method::GET, path, &headers).await.unwrap();
        (self.app.requests_named(&name), response)
    }

    /// Load from the buyer.
    fn load(&self, path: &str) -> Load {
        Load::start(self.buyer.socket(14001), "store", path)
    }

    /// Checks the load: each request got one of these statuses, and reached the store once if the
    /// store answered it.
    #[expect(clippy::print_stderr, reason = "the figures belong to the test's report")]
    async fn assert_no_failures(&self, load: Load, before: u64, statuses: &[StatusCode]) {
        let report = load.finish().await;
        eprintln!("{} requests in {:?}: {:?}", report.requests, report.duration, report.by_status);
        report.assert_answered_with(statuses);
        assert_eq!(
            self.app.unnamed_requests() - before,
            report.answers(StatusCode::OK),
            "tried again"
        );
        self.assert_no_update_errors().await;
    }

    async fn assert_no_update_errors(&self) {
        for envoy in [&self.buyer, &self.auditor, &self.server] {
            envoy.assert_no_update_errors().await;
        }
    }
}

/// Waits until an Envoy's configuration has this text, or has it no more. A request that no sidecar
/// ends in time would take much longer.
async fn wait_for(envoy: &Envoy, text: &str, is_there: bool) {
    eventually(&format!("{text} to be there: {is_there}"), async || {
        let has = envoy.config_dump().await.to_string().contains(text);
        if has == is_there { Ok(()) } else { Err(has) }
    })
    .await;
}

/// A request that the store answers with this status.
async fn request(envoy: &Envoy, path: &str, answer: &str) -> anyhow::Result<Response> {
    let mut connection = Http1Connection::connect(envoy.socket(14001)).await?;
    connection.request(Method::GET, path, &[("host", "store"), ("x-answer", answer)]).await
}

/// Open Service Mesh's scenario: five retries on 5xx, then the error.
#[tokio::test(flavor = "multi_thread")]
async fn retries_follow_policy_and_stop_on_its_removal() {
    let retry = r#"
[[retry]]
name = "buyer"
source = { kind = "ServiceAccount", name = "buyer" }
destinations = [{ kind = "Service", name = "store" }]
retry_policy = { retry_on = "5xx", num_retries = 5, per_try_timeout = "3s", retry_backoff_base_interval = "1ms" }
"#;
    let Some(setup) = HttpRouteMesh::open("").await else { return };
    let before = setup.app.unnamed_requests();
    let load = setup.load("/");
    setup.mesh.write_policy("treatments.toml", retry);
    wait_for(&setup.buyer, "\"num_retries\":5", true).await;
    let counters = async || {
        let of = |name: &str| format!(r"^cluster\.default/store\|14001\.{name}$");
        let mut counts = Vec::new();
        for name in [
            "upstream_rq_retry",
            "upstream_rq_retry_limit_exceeded",
            "upstream_rq_retry_backoff_exponential",
        ] {
            counts.push(setup.buyer.sum(&of(name)).await);
        }
        counts
    };
    assert_eq!(counters().await, [0, 0, 0]);
    assert_eq!(setup.tries(&setup.buyer, "/", "503").await, (6, 503));
    assert_eq!(counters().await, [5, 1, 5]);
    // Other statuses and other callers get no retries.
    assert_eq!(setup.tries(&setup.buyer, "/", "429").await, (1, 429));
    assert_eq!(setup.tries(&setup.auditor, "/", "503").await, (1, 503));
    setup.mesh.write_policy("treatments.toml", "");
    eventually("no more retries", async || match setup.tries(&setup.buyer, "/", "503").await {
        (1, 503) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    setup.assert_no_failures(load, before, &[StatusCode::OK]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn most_specific_http_route_setting_wins() {
    let of_all = "[[http_route]]\nname = \"all\"\nscope = \"mesh\"\n";
    let of_namespace = "[[http_route]]\nname = \"here\"\nscope = \"namespace\"\n";
    let of_service = "[[http_route]]\nname = \"store\"\nservice = \"store\"\n";
    let of_search = "[[http_route]]\nname = \"search\"\nservice = \"store\"\n\
                     matches = [{ kind = \"HTTPRouteGroup\", name = \"store\", matches = [\"search\"] }]\n";
    let retry = "[[retry]]\nname = \"buyer\"\nsource = { name = \"buyer\" }\n\
                 destinations = [{ name = \"store\" }]\n";
    let tries = |count: u32| {
        format!(
            "retries = {{ retry_on = [\"503\"], num_retries = {count}, backoff_base_interval = \"1ms\" }}\n"
        )
    };
    let Some(setup) = HttpRouteMesh::open("").await else { return };
    let before = setup.app.unnamed_requests();
    let load = setup.load("/search");
    // Each is nearer than the one before, and all of them stay.
    let mut policy = String::new();
    let retry = format!(
        "{retry}retry_policy = {{ retry_on = \"503\", num_retries = 4, retry_backoff_base_interval = \"1ms\" }}\n"
    );
    let nearer = [
        (format!("{of_all}{}", tries(1)), [2, 2, 2]),
        (format!("{of_namespace}{}", tries(2)), [3, 3, 3]),
        (format!("{of_service}{}", tries(3)), [4, 4, 4]),
        (retry, [5, 5, 4]),
        (format!("{of_search}{}", tries(5)), [5, 6, 6]),
        // A setting that the nearest object omits comes from the next one.
        (
            format!("{of_search}{}", tries(5))
                .replace("name = \"search\"\n", "name = \"00-search\"\n")
                .replace(&tries(5), "timeout = \"1m\"\n"),
            [5, 5, 4],
        ),
    ];
    for (object, expected) in nearer {
        policy.push_str(&object);
        setup.mesh.write_policy("treatments.toml", &policy);
        eventually(&format!("{expected:?} tries"), async || {
            let of_buyer = setup.tries(&setup.buyer, "/", "503").await;
            let search = setup.tries(&setup.buyer, "/search", "503").await;
            let of_auditor = setup.tries(&setup.auditor, "/search", "503").await;
            let seen = [of_buyer, search, of_auditor].map(|(tries, _)| tries);
            if seen == expected { Ok(()) } else { Err(format!("{seen:?}")) }
        })
        .await;
    }
    setup.mesh.write_policy("treatments.toml", "");
    eventually("no more retries", async || match setup.tries(&setup.buyer, "/", "503").await {
        (1, 503) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    setup.assert_no_failures(load, before, &[StatusCode::OK]).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn request_and_per_try_timeouts_are_enforced() {
    let of_service = "[[http_route]]\nname = \"store\"\nservice = \"store\"\ntimeout = \"50ms\"\n";
    let Some(setup) = HttpRouteMesh::open(of_service).await else { return };
    wait_for(&setup.buyer, "\"timeout\":\"0.050s\"", true).await;
    assert_eq!(setup.tries(&setup.buyer, "/", "never").await, (1, 504));
    // With retries the total time is longer.
    let retried = format!(
        "{of_service}retries = {{ retry_on = [\"gateway-error\"], num_retries = 2, per_try_timeout = \"5ms\", backoff_base_interval = \"1ms\" }}\n"
    )
    .replace("50ms", "20s");
    setup.mesh.write_policy("treatments.toml", &retried);
    wait_for(&setup.buyer, "\"per_try_timeout\":\"0.005s\"", true).await;
    eventually("three tries", async || match setup.tries(&setup.buyer, "/", "never").await {
        (3, 504) => Ok(()),
        other => Err(format!("{other:?}")),
    })
    .await;
    // Only for these callers.
    let retried = retried.replace("per_try_timeout = \"5ms\"", "per_try_timeout = \"5s\"");
    let sources = "sources = [{ name = \"auditor\" }]\n";
    let limited = retried.replace("\ntimeout = ", &format!("\n{sources}timeout = "));
    setup.mesh.write_policy("treatments.toml", &limited);
    eventually("the buyer to be none of them", async || {
        match (
            setup.tries(&setup.buyer, "/", "504").await,
            setup.tries(&setup.auditor, "/", "504").await,
        ) {
            ((1, 504), (3, 504)) => Ok(()),
            other => Err(format!("{other:?}")),
        }
    })
    .await;
    setup.assert_no_update_errors().await;
}

#[tokio::test(flavor = "multi_thread")]
async fn http_route_changes_under_load_fail_no_request() {
    let Some(setup) = SplitMesh::open("").await else { return };
    let load = setup.load().await;
    let mut connection = setup.connection().await;
    let mut request = async |answer: &str| {
        let headers = [("host", "store"), ("x-answer", answer)];
        connection.request(Method::GET, "/", &headers).await
    };
    for _ in 0..2 {
        let route = "[[http_route]]\nname = \"store\"\nservice = \"store\"\ntimeout = \"2s\"\n";
        setup.mesh.write_policy("treatments.toml", route);
        let time = "\"timeout\":\"2s\"";
        wait_for(&setup.buyer, time, true).await;
        // On the connection of the beginning. The load has the same timeout.
        ensure_status(&request("never").await.unwrap(), 504).unwrap();
        setup.mesh.remove_policy("treatments.toml");
        wait_for(&setup.buyer, time, false).await;
        ensure_status(&request("200").await.unwrap(), 200).unwrap();
    }
    // For all calls, including the service of the stream; each setting replaces the one before.
    for (key, text) in [
        ("timeout = \"59s\"", "\"timeout\":\"59s\""),
        ("retries = { retry_on = [\"refused-stream\"], num_retries = 9 }", "\"num_retries\":9"),
        ("fault = { delay = { duration = \"1ms\", percent = 100 } }", "\"fixed_delay\":\"0.001s\""),
        ("request_headers = { set = { x-sent-level = \"yes\" } }", "\"x-sent-level\""),
        ("response_headers = { set = { x-returned-level = \"yes\" } }", "\"x-returned-level\""),
        (
            "rewrite = { path_prefix = { from = \"/\", to = \"/v2\" }, host = \"books.example\" }",
            "books.example",
        ),
        ("mirror = { service = \"v3\" }", "\"request_mirror_policies\""),
        ("allow_override_headers = true", "\"ironmesh.overrides.put-back\":"),
    ] {
        let route = format!("[[http_route]]\nname = \"all\"\nscope = \"mesh\"\n{key}\n");
        setup.mesh.write_policy("treatments.toml", &route);
        wait_for(&setup.buyer, text, true).await;
        ensure_status(&request("200").await.unwrap(), 200).unwrap();
    }
    assert!(setup.app("v3").requests() > 0, "nothing was copied");
    setup.mesh.remove_policy("treatments.toml");
    wait_for(&setup.buyer, "\"ironmesh.overrides.put-back\":", false).await;
    ensure_status(&request("200").await.unwrap(), 200).unwrap();
    setup.assert_no_failures(load).await;
}

#[tokio::test(flavor = "multi_thread")]
async fn fault_injection_affects_only_matching_requests_and_callers() {
    let fault = |keys: &str| {
        format!(
            "[[http_route]]\nname = \"search\"\nservice = \"store\"\nsources = [{{ name = \"buyer\" }}]\n\
             matches = [{{ kind = \"HTTPRouteGroup\", name = \"store\", matches = [\"search\"] }}]\n{keys}\n"
        )
    };
    // It overrides the route's retries, which do not apply: an aborted request reaches no server.
    let aborts = fault(
        "fault = { abort = { status = 418, percent = 100 } }\n\
         retries = { retry_on = [\"418\"], num_retries = 3 }",
    );
    let Some(setup) = HttpRouteMesh::open("").await else { return };
    let before_load = setup.app.unnamed_requests();
    let load = setup.load("/search");
    load.wait_for_status(StatusCode::OK).await;
    setup.mesh.write_policy("treatments.toml", &aborts);
    load.wait_for_status(StatusCode::IM_A_TEAPOT).await;
    assert_eq!(setup.tries(&setup.buyer, "/search", "200").await, (0, 418));
    assert_eq!(setup.tries(&setup.buyer, "/", "200").await, (1, 200));
    assert_eq!(setup.tries(&setup.auditor, "/search", "200").await, (1, 200));
    // Of requests with a header, whatever their path: each protocol gets the fault in its own form.
    let grpc = ("content-type", "application/grpc");
    for (with, of_http, of_grpc) in
        [("status = 417", 417, (200, Some("2"))), ("grpc_status = 7", 200, (200, Some("7")))]
    {
        let marked = fault(&format!("fault = {{ abort = {{ {with}, percent = 100 }} }}"));
        setup.mesh.write_policy("treatments.toml", &marked.replace("[\"search\"]", "[\"marked\"]"));
        eventually(&format!("faults by {with}"), async || {
            let (tries, response) = setup.call(&setup.buyer, "/", &[("x-mark", "yes"), grpc]).await;
            let seen = (response.status.as_u16(), response.header("grpc-status"));
            anyhow::ensure!((tries, seen) == (0, of_grpc), "{tries}, {response:?}");
            Ok(())
        })
        .await;
        for (mark, expected) in [("yes", (0, of_http)), ("yes, no", (1, 200)), ("", (1, 200))] {
            let mark = [("x-mark", mark)];
            let headers = if mark[0].1.is_empty() { &[] } else { &mark[..] };
            let (tries, response) = setup.call(&setup.buyer, "/search", headers).await;
            assert_eq!((tries, response.status.as_u16()), expected, "{with}: {headers:?}");
        }
        let (tries, response) = setup.call(&setup.auditor, "/", &[("x-mark", "yes")]).await;
        assert_eq!((tries, response.status.as_u16()), (1, 200), "{with}: of another caller");
    }
    // A share of the requests: neither all nor none.
    let some = fault("fault = { abort = { status = 418, percent = 50.0 } }");
    setup.mesh.write_policy("treatments.toml", &some);
    wait_for(&setup.buyer, "\"numerator\":500000", true).await;
    let mut aborted = 0;
    for _ in 0..100 {
        let (_, status) = setup.tries(&setup.buyer, "/search", "200").await;
        aborted += u32::from(status == 418);
    }
    assert!((5..=95).contains(&aborted), "{aborted} of 100");
    load.wait_for_status(StatusCode::IM_A_TEAPOT).await;
    load.wait_for_status(StatusCode::OK).await;
    setup.mesh.write_policy("treatments.toml", "");
    wait_for(&setup.buyer, "\"numerator\":500000", false).await;
    load.wait_for_status(StatusCode::OK).await;
    let statuses = [StatusCode::OK, StatusCode::IM_A_TEAPOT];
    setup.assert_no_failures(load, before_load, &statuses).await;
    // Load on a path without settings: on the other path each request would wait.
    let before_load = setup.app.unnamed_requests();
    let load = setup.load("/");
    // As a delay: the request still reaches the application, with its full timeout.
    let injected =
        async |what: &str| setup.buyer.sum(&format!(r"^http\..*\.fault\.{what}_injected$")).await;
    let delays =
        fault("fault = { delay = { duration = \"3s\", percent = 100 } }\ntimeout = \"2s\"");
    setup.mesh.write_policy("treatments.toml", &delays);
    eventually("delays", async || {
        assert_eq!(setup.tries(&setup.buyer, "/search", "200").await, (1, 200));
        let delays = injected("delays").await;
        if delays > 0 { Ok(()) } else { Err(delays) }
    })
    .await;
    assert_eq!(setup.tries(&setup.buyer, "/", "200").await, (1, 200));
    assert_eq!(injected("delays").await, 1);
    setup.mesh.write_policy("treatments.toml", "");
    wait_for(&setup.buyer, "\"fixed_delay\"", false).await;
    assert_eq!(setup.tries(&setup.buyer, "/search", "200").await, (1, 200));
    assert_eq!(injected("delays").await, 1);
    setup.assert_no_failures(load, before_load, &[StatusCode::OK]).await;
}

/// A caller's headers for Envoy, on either side, do not override policy.
#[tokio::test(flavor = "multi_thread")]
async fn caller_headers_do_not_control_the_sidecar() {
    let of_service = "[[http_route]]\nname = \"store\"\nservice = \"store\"\n\
                      timeout = \"1m\"\nretries = { num_retries = 0 }\n";
    let Some(setup) = HttpRouteMesh::open(of_service).await else { return };
    let words = [
        ("x-envoy-max-retries", "3"),
        ("x-envoy-retry-on", "5xx"),
        ("x-envoy-retry-grpc-on", "unavailable"),
        ("x-envoy-retriable-status-codes", "503"),
        ("x-envoy-upstream-rq-timeout-alt-response", "1"),
        ("x-envoy-upstream-rq-timeout-ms", "1"),
        ("x-envoy-upstream-rq-per-try-timeout-ms", "1"),
        ("x-envoy-upstream-stream-duration-ms", "1"),
        ("x-envoy-expected-rq-timeout-ms", "1"),
        ("x-envoy-hedge-on-per-try-timeout", "true"),
        ("x-envoy-upstream-alt-stat-name", "mine"),
        ("x-envoy-decorator-operation", "mine"),
        ("x-envoy-force-trace", "true"),
        ("x-envoy-ip-tags", "mine"),
        ("x-envoy-original-path", "/mine"),
        ("x-envoy-internal", "true"),
        ("x-envoy-fault-abort-request", "418"),
        ("x-envoy-fault-delay-request", "1"),
        ("X-Envoy-Whatever", "mine"),
    ];
    // Requests that look internal, which some Envoy setups trust.
    for from in [&[][..], &[("x-forwarded-for", "127.0.0.1")], &[("x-forwarded-for", "10.0.0.1")]] {
        let headers = [&[("host", "store"), ("x-answer", "503")], &words[..], from].concat();
        let before = setup.app.requests();
        let mut connection = Http1Connection::connect(setup.buyer.socket(14001)).await.unwrap();
        let response = connection.request(Method::GET, "/", &headers).await.unwrap();
        ensure_status(&response, 503).unwrap();
        assert_eq!(setup.app.requests() - before, 1, "tried again");
        let arrived = response.json()["headers"].as_object().unwrap().clone();
        let to_envoy: Vec<_> =
            arrived.iter().filter(|(name, _)| name.starts_with("x-envoy-")).collect();
        assert!(to_envoy.is_empty(), "{to_envoy:?}");
        // The delay of policy applies, which is longer than a caller could request.
        let headers = [&[("host", "store")], &words[..], from].concat();
        ensure_status(&connection.request(Method::GET, "/", &headers).await.unwrap(), 200).unwrap();
    }
    let named = setup.buyer.sum(r"^cluster\..*\.mine\.").await;
    assert_eq!(named, 0);
    // Nor does a peer that dials the server's sidecar directly.
    let folder = setup.mesh.bootstrap(&ProxyOptions::new("default/buyer", 13)).await;
    let peer = ProxyClient::connect(&folder, setup.mesh.xds()).await.unwrap();
    let (chain, key) = peer.service_certificate("default/buyer").await.unwrap();
    let (port, sni) = (setup.server.socket(15003), "14001.store.default.mesh.internal");
    let stream = tls::connect_mesh(port, sni, &["ironmesh"], &chain, &key, &peer.roots).await;
    let mut connection = Http1Connection::over(stream.unwrap()).await.unwrap();
    let headers = [&[("host", "store"), ("x-answer", "503")], &words[..]].concat();
    let before = setup.app.requests();
    let response = connection.request(Method::GET, "/", &headers).await.unwrap();
    ensure_status(&response, 503).unwrap();
    assert_eq!(setup.app.requests() - before, 1, "tried again");
    assert!(!response.text().contains("x-envoy-"), "{}", response.text());
    setup.assert_no_update_errors().await;
}
