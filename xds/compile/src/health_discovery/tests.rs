//! The specifier of health discovery, as Envoy reads it.

use std::net::Ipv4Addr;

use super::*;

const LOCALHOST: IpAddr = IpAddr::V4(Ipv4Addr::LOCALHOST);

fn application(service: &str, target: u16, probe: Probe) -> ProbedApplication {
    let check = HealthCheck {
        port: 80,
        probe,
        interval: Duration::from_secs(2),
        timeout: Duration::from_millis(1500),
        unhealthy_threshold: 3,
        healthy_threshold: 2,
    };
    let service_port = ServicePort::new(service.parse().unwrap(), 80);
    ProbedApplication { service_port, target, check }
}

fn http(host: Option<&str>) -> Probe {
    let statuses = vec![StatusRange { first: 200, last: 399 }];
    let host = host.map(str::to_owned);
    Probe::Http { path: "/healthz".to_owned(), host, statuses, http2: false }
}

fn specifier(applications: &[ProbedApplication]) -> HealthCheckSpecifier {
    health_check_specifier(applications, LOCALHOST, Duration::from_secs(4))
}

#[test]
fn specifier_has_two_checks_per_application() {
    let applications =
        [application("store", 8080, http(None)), application("store", 8081, http(None))];
    let HealthCheckSpecifier { cluster_health_checks, interval } = specifier(&applications);
    assert_eq!(interval, Some(duration(Duration::from_secs(4))));
    let [policy, passed] = cluster_health_checks.as_slice() else { panic!("two clusters") };
    assert_eq!(policy.cluster_name, "default/store|80|local");
    assert_eq!(passed.cluster_name, "default/store|80|passed");
    assert_eq!(policy.locality_endpoints, passed.locality_endpoints);
    let endpoints = &policy.locality_endpoints[0].endpoints;
    let hosts: Vec<_> =
        endpoints.iter().map(|one| &*one.health_check_config.as_ref().unwrap().hostname).collect();
    assert_eq!(hosts, ["127.0.0.1:8080", "127.0.0.1:8081"]);

    let (policy, passed) = (&policy.health_checks[0], &passed.health_checks[0]);
    assert_eq!(policy.no_traffic_interval, Some(duration(Duration::from_secs(2))));
    assert_eq!(policy.no_traffic_healthy_interval, None);
    assert_eq!(policy.timeout, Some(duration(Duration::from_millis(1500))));
    assert_eq!(policy.reuse_connection, no());
    assert_eq!((policy.unhealthy_threshold, policy.healthy_threshold), (number(3), number(2)));
    let Some(HealthChecker::HttpHealthCheck(check)) = &policy.health_checker else {
        panic!("an HTTP check")
    };
    assert_eq!(check.expected_statuses, [Int64Range { start: 200, end: 400 }]);
    assert_eq!(check.retriable_statuses, [Int64Range { start: 100, end: 600 }]);
    assert_eq!(passed.unhealthy_threshold, number(u32::MAX));
    assert_eq!(passed.healthy_threshold, number(3), "never before that of policy");
    assert_eq!(passed.no_traffic_interval, policy.no_traffic_interval);
    assert_eq!(passed.no_traffic_healthy_interval, Some(duration(NEVER)));
    assert_eq!(passed.health_checker, policy.health_checker);
}

#[test]
fn host_of_policy_is_not_replaced_by_the_address() {
    let made = specifier(&[application("store", 8080, http(Some("store.example")))]);
    let cluster = &made.cluster_health_checks[0];
    assert_eq!(cluster.locality_endpoints[0].endpoints[0].health_check_config, None);
    let Some(HealthChecker::HttpHealthCheck(check)) = &cluster.health_checks[0].health_checker
    else {
        panic!("an HTTP check")
    };
    assert_eq!(check.host, "store.example");
}

#[test]
fn command_has_no_health_check_and_an_empty_specifier_an_interval() {
    let command = Probe::Command { name: "check".parse().unwrap() };
    let made = specifier(&[application("store", 8080, command), application("b", 1, Probe::Tcp)]);
    let names: Vec<_> =
        made.cluster_health_checks.iter().map(|one| one.cluster_name.as_str()).collect();
    assert_eq!(names, ["default/b|80|local", "default/b|80|passed"]);
    let empty = specifier(&[]);
    assert_eq!(empty.cluster_health_checks, []);
    assert_eq!(empty.interval, Some(duration(Duration::from_secs(4))));
}
