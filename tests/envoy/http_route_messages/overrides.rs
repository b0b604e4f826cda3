//! Timeouts and retries that the caller sets by headers.

use std::sync::atomic::Ordering;

use http::{Method, StatusCode};
use ironmesh_tests::{Http1Connection, eventually, get_once, request_name};

use super::{MessageMesh, route};

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
