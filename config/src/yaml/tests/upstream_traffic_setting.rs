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
fn what_open_service_mesh_limits_is_limited_here() {
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
fn a_host_is_that_of_a_service_of_the_namespace() {
    for (host, told) in [
        ("store", "error[IM0105]: `host` must be the hostname of a service: `store`"),
        ("store.shop.svc", "error[IM0105]: the service of `store.shop.svc` is in namespace `shop`"),
        ("stroe.default.svc", "error[IM0201]: there is no service `stroe` in namespace `default`"),
    ] {
        let findings = findings(&format!("{SERVICES}{}", setting(host, LIMITS)));
        assert!(findings.iter().any(|one| one.starts_with(told)), "{host}: {findings:#?}");
    }
}
