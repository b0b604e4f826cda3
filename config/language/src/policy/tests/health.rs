//! `[service.health]`.

use std::time::Duration;

use ironmesh_catalog::{HealthCheck, Probe, ServiceName, StatusRange};

use super::*;

const PORT: &str = "ports = [{ port = 80, protocol = \"http\", target_port = 8080 }]\n";
const PORTS: &str = "ports = [{ name = \"a\", port = 80, protocol = \"http\" }, { name = \"b\", port = 81, protocol = \"grpc\" }]\n";

fn document(rest: &str) -> String {
    format!("[[service]]\nname = \"a\"\n{rest}")
}

fn check(rest: &str) -> HealthCheck {
    let specification = specification(&document(rest));
    let name = "a".parse::<ServiceName>().unwrap();
    specification.services.get(&name).unwrap().health.clone().unwrap()
}

fn finding_in(rest: &str) -> String {
    finding(&document(rest))
}

#[test]
fn health_check_has_documented_defaults() {
    let check = check(&format!("{PORT}health = {{ tcp = {{}} }}"));
    let expected = HealthCheck {
        port: 80,
        probe: Probe::Tcp,
        interval: Duration::from_secs(5),
        timeout: Duration::from_secs(2),
        unhealthy_threshold: 3,
        healthy_threshold: 2,
    };
    assert_eq!(check, expected);
    let fast = self::check(&format!("{PORT}health = {{ tcp = {{}}, interval = \"1s\" }}"));
    assert_eq!(fast.timeout, Duration::from_secs(1), "never longer than the interval");
}

#[test]
fn each_kind_of_probe_is_read() {
    let probe = |rest: &str| check(&format!("{PORT}health = {{ {rest} }}")).probe;
    let http = |host: Option<&str>, statuses| Probe::Http {
        path: "/healthz".to_owned(),
        host: host.map(str::to_owned),
        statuses,
        http2: false,
    };
    assert_eq!(probe("http = { path = \"/healthz\" }"), http(None, vec![StatusRange::default()]));
    let statuses =
        vec![StatusRange { first: 200, last: 299 }, StatusRange { first: 404, last: 404 }];
    assert_eq!(
        probe("http = { path = \"/healthz\", host = \"a.b\", statuses = [\"200-299\", 404] }"),
        http(Some("a.b"), statuses)
    );
    assert_eq!(probe("grpc = {}"), Probe::Grpc { service: None });
    assert_eq!(
        probe("grpc = { service = \"shop.Store\" }"),
        Probe::Grpc { service: Some("shop.Store".to_owned()) }
    );
    let name = "check-it".parse().unwrap();
    assert_eq!(probe("command = \"check-it\""), Probe::Command { name });
    let second = check(&format!("{PORTS}health = {{ http = {{ path = \"/\" }}, port = 81 }}"));
    assert!(matches!(second.probe, Probe::Http { http2: true, .. }) && second.port == 81);
    let named = check(&format!("{PORTS}health = {{ tcp = {{}}, port = \"b\" }}"));
    assert_eq!(named.port, 81, "a name");
}

#[test]
fn probe_settings_out_of_range_are_rejected_with_their_place() {
    for (settings, expected) in [
        (
            "interval = \"0s\"",
            "error[IM0105]: `interval` must be from 1s to 60m: `0s` (p.toml:4:33)",
        ),
        ("interval = \"500ms\"", "`interval` must be from 1s to 60m"),
        ("interval = \"2h\"", "`interval` must be from 1s to 60m"),
        (
            "timeout = \"0s\"",
            "error[IM0105]: `timeout` must be from 1ms to 60m: `0s` (p.toml:4:32)",
        ),
        (
            "interval = \"2s\", timeout = \"3s\"",
            "error[IM0105]: `timeout` of a health check must not be longer than its `interval` (p.toml:4:49)",
        ),
        ("timeout = \"6s\"", "must not be longer than its `interval`"),
        (
            "unhealthy_threshold = 0",
            "error[IM0105]: `unhealthy_threshold` must be from 1 to 100: `0` (p.toml:4:44)",
        ),
        ("healthy_threshold = 0", "`healthy_threshold` must be from 1 to 100: `0`"),
        ("healthy_threshold = 101", "`healthy_threshold` must be from 1 to 100: `101`"),
        ("port = 81", "error[IM0201]: the service has no port `81` (p.toml:4:29)"),
    ] {
        let found = finding_in(&format!("{PORT}health = {{ tcp = {{}}, {settings} }}"));
        assert!(found.contains(expected), "{settings}: {found}");
    }
}

#[test]
fn health_check_has_exactly_one_known_probe() {
    for (probes, expected) in [
        ("", "error[IM0103]: a health check needs a probe (p.toml:4:10)"),
        (
            "tcp = {}, grpc = {}",
            "error[IM0105]: a health check has exactly one probe (p.toml:4:10)",
        ),
        ("http = {}", "error[IM0103]: an HTTP probe needs `path`"),
        ("http = { path = \"healthz\" }", "`path` must begin with `/`"),
        ("http = { path = \"/a b\" }", "`path` must begin with `/`"),
        ("http = { path = \"/\", host = \"a/b\" }", "`host` must be a hostname"),
        ("http = { path = \"/\", statuses = [] }", "`statuses` is empty"),
        ("http = { path = \"/\", statuses = [\"999\"] }", "`999` is no status"),
        ("command = [\"rm\", \"-rf\"]", "`command` must be a string, not an array"),
        ("command = \"/bin/true\"", "error[IM0106]"),
    ] {
        let found = finding_in(&format!("{PORT}health = {{ {probes} }}"));
        assert!(found.contains(expected), "{probes}: {found}");
    }
    let unknown = findings(&document(&format!("{PORT}health = {{ quic = {{}}, tcp = {{}} }}")));
    assert!(unknown[0].contains("error[IM0102]: a health check has no key `quic`"), "{unknown:?}");
}

#[test]
fn health_check_needs_an_application_of_the_mesh() {
    let without = finding_in("health = { tcp = {} }");
    assert!(without.contains("a service without ports has no application to probe"), "{without}");
    let several = finding_in(&format!("{PORTS}health = {{ tcp = {{}} }}"));
    assert!(several.contains("a health check of a service with several ports needs `port`"));
    assert!(several.contains("the service has port 80 (`a`), 81 (`b`)"), "{several}");
    let external = "external = true\nhostname = \"a.example\"\n";
    let external = finding_in(&format!("{PORT}{external}health = {{ tcp = {{}} }}"));
    assert!(external.contains("an external service has no health check"), "{external}");
}
