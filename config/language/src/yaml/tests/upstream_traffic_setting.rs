//! Open Service Mesh's UpstreamTrafficSetting.

use std::time::Duration;

use ironmesh_catalog::{HttpConnections, RetryLimit, TcpConnections};

use super::*;

/// A setting of a host, with what else is below `spec`.
fn setting(host: &str, rest: &str) -> String {
    let spec = format!("spec:\n  host: {host}\n{rest}");
    resource("policy.openservicemesh.io/v1alpha1", "UpstreamTrafficSetting", "s", &spec)
}

const LIMITS: &str = "  connectionSettings:\n    tcp:\n      maxConnections: 7\n      \
                      connectTimeout: 1m30s\n    http:\n      maxRequests: 6\n      \
                      maxRequestsPerConnection: 5\n      maxPendingRequests: 4\n      maxRetries: 0\n";

#[test]
fn osm_connection_limits_are_converted() {
    let host = "store.default.svc.cluster.local";
    let specification = specification(&format!("{SERVICES}{}", setting(host, LIMITS)));
    let settings = specification.upstream_traffic_settings.values().collect::<Vec<_>>();
    let [one] = &settings[..] else { panic!("{settings:?}") };
    assert_eq!(one.level.to_string(), "service `default/store`");
    let tcp =
        TcpConnections { max_connections: Some(7), connect_timeout: Some(Duration::from_secs(90)) };
    let http = HttpConnections {
        max_requests: Some(6),
        max_requests_per_connection: Some(5),
        max_pending_requests: Some(4),
        retries: Some(RetryLimit::Most(0)),
    };
    assert_eq!((&one.tcp, &one.http), (&Some(tcp), &Some(http)));
}

#[test]
fn setting_host_must_be_a_service_of_the_namespace() {
    for (host, reported) in [
        ("store", "error[IM0105]: `host` must be the hostname of a service: `store`"),
        ("store.shop.svc", "error[IM0105]: the service of `store.shop.svc` is in namespace `shop`"),
        ("stroe.default.svc", "error[IM0201]: there is no service `stroe` in namespace `default`"),
    ] {
        let findings = findings(&format!("{SERVICES}{}", setting(host, LIMITS)));
        assert!(findings.iter().any(|one| one.starts_with(reported)), "{host}: {findings:#?}");
    }
}

#[test]
fn osm_local_rate_limits_are_converted_with_whole_paths() {
    let rates = "  rateLimit:\n    local:\n      tcp: { connections: 3, unit: minute, burst: 1 }\n      \
                 http: { requests: 2, unit: hour }\n  httpRoutes:\n  - path: /a\n    rateLimit:\n      \
                 local: { requests: 1, unit: second, responseStatusCode: 503 }\n";
    let text = format!("{SERVICES}{}", setting("store.default.svc.cluster.local", rates));
    // (That the service has no port for connections is a warning.)
    let specification = load(&text).specification.unwrap();
    let one = specification.upstream_traffic_settings.values().next().unwrap();
    assert_eq!(one.local_tcp.unwrap().to_string(), "3 per minute, 1 more at once");
    assert_eq!(one.local_http.as_ref().unwrap().rate.to_string(), "2 per hour");
    let [route] = &one.http_routes.as_ref().unwrap()[..] else { panic!("{one:?}") };
    assert_eq!((&*route.path.text, route.local_http.as_ref().unwrap().status), ("/a", 503));
}

#[test]
fn osm_global_rate_limits_are_converted() {
    let rates = "  rateLimit:\n    global:\n      http:\n        rateLimitService: { host: limits.example.com, port: 80 }\n        \
                 domain: d\n        failOpen: false\n        descriptors:\n        - entries:\n          - remoteAddress: {}\n          \
                 - genericKey: { value: v }\n          - requestHeader: { name: X-User, key: u }\n          \
                 - headerValueMatch: { value: w, headers: [{ name: a, contains: b }], expectMatch: false }\n  \
                 httpRoutes:\n  - path: /a\n    rateLimit:\n      global:\n        descriptors:\n        - entries:\n          \
                 - genericKey: { value: a }\n";
    let text = format!("{SERVICES}{}", setting("store.default.svc.cluster.local", rates));
    let specification = specification(&text);
    let one = specification.upstream_traffic_settings.values().next().unwrap();
    let global = one.global_http.as_ref().unwrap();
    assert_eq!(
        (global.service.to_string().as_str(), global.fail_open),
        ("limits.example.com:80", false)
    );
    assert_eq!(global.descriptors[0].0.len(), 4);
    assert!(one.http_routes.as_ref().unwrap()[0].descriptors.is_some());

    let rates = "  rateLimit:\n    global:\n      tcp:\n        rateLimitService: { host: limits.example.com, port: 80 }\n        \
                 domain: d\n        timeout: 1s\n        descriptors:\n        - entries:\n          - { key: k, value: v }\n";
    let text = format!("{SERVICES}{}", setting("store.default.svc.cluster.local", rates));
    // (That the service has no port for connections is a warning.)
    let specification = load(&text).specification.unwrap();
    let one = specification.upstream_traffic_settings.values().next().unwrap();
    let global = one.global_tcp.as_ref().unwrap();
    assert_eq!((global.timeout.as_secs(), global.fail_open), (1, true));
    assert_eq!(global.descriptors, [[("k".into(), "v".into())]]);
}
