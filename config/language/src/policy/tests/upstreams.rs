//! Upstreams of services.

use ironmesh_catalog::{PolicyUpstream, PortReference, Service, ServiceName};

use super::*;

/// A service `till` in namespace `shop` with these upstreams, and the services that they may name.
fn text(upstreams: &str) -> String {
    format!(
        r#"
[[service]]
name = "till"
namespace = "shop"
ports = [{{ port = 80, protocol = "http", target_port = 8080 }}]
upstreams = [{upstreams}]

[[service]]
name = "api"
namespace = "shop"
ports = [
  {{ name = "web", port = 80, protocol = "http" }},
  {{ name = "db", port = 3306, protocol = "tcp" }},
]

[[service]]
name = "ledger"
ports = [{{ port = 3306, protocol = "tcp" }}]

[[service]]
name = "client"
"#
    )
}

#[test]
fn upstream_names_one_port_of_its_service() {
    let upstreams = "\
        { service = \"shop/api\", port = \"web\", local_port = 9001 },
        { service = \"api\", port = 3306, local_port = 9002 },
        { service = \"default/ledger\", local_port = 65535 },";
    let specification = specification(&text(upstreams));
    let service = |name: &str| &specification.services[&name.parse::<ServiceName>().unwrap()];
    let Service { upstreams, .. } = Service::clone(service("shop/till"));
    let written: Vec<_> = upstreams.iter().map(ToString::to_string).collect();
    let expected = ["shop/api:web=9001", "shop/api:3306=9002", "default/ledger=65535"];
    assert_eq!(written, expected);
    let port = |upstream: &PolicyUpstream| {
        upstream.port_of(service(&upstream.service.to_string())).map(|port| port.number)
    };
    let ports: Vec<_> = upstreams.iter().map(port).collect();
    assert_eq!(ports, [Some(80), Some(3306), Some(3306)]);
    assert_eq!(upstreams[0].port, Some(PortReference::Name("web".parse().unwrap())));
    assert_eq!(upstreams[1].spot.line, 7);
}

#[test]
fn invalid_upstream_is_reported_at_its_value() {
    for (upstream, expected) in [
        (
            "service = \"shop/apj\", local_port = 9001",
            "error[IM0201]: there is no service `apj` in namespace `shop` (p.toml:6:26)",
        ),
        ("service = \"a b\", local_port = 9001", "error[IM0106]: `service` may"),
        ("service = \"a/b/c\", local_port = 9001", "error[IM0106]: `service` may"),
        ("local_port = 9001", "error[IM0103]: an upstream needs `service`"),
        ("service = \"api\", port = 80", "error[IM0103]: an upstream needs `local_port`"),
        (
            "service = \"api\", local_port = 9001",
            "error[IM0105]: `shop/api=9001` names none of the 2 ports of service `shop/api`",
        ),
        (
            "service = \"api\", port = \"wab\", local_port = 9001",
            "error[IM0201]: `shop/api:wab=9001` names no port of service `shop/api`",
        ),
        (
            "service = \"api\", port = 81, local_port = 9001",
            "error[IM0201]: `shop/api:81=9001` names no port of service `shop/api`",
        ),
        (
            "service = \"default/client\", local_port = 9001",
            "error[IM0201]: service `default/client` has no ports",
        ),
        ("service = \"api\", port = true, local_port = 9001", "error[IM0104]: `port` must be"),
        ("service = \"api\", port = 80, local_port = 0", "error[IM0105]: `local_port` must be"),
        (
            "service = \"api\", port = 80, local_port = 1023",
            "error[IM0105]: `local_port` must be from 1024 to 65535: `1023`",
        ),
        ("service = \"api\", port = 80, local_port = 65536", "error[IM0105]: `local_port` must"),
        (
            "service = \"api\", port = 80, local_port = 15080",
            "error[IM0105]: `local_port` 15080 is a port of Ironmesh itself",
        ),
        (
            "service = \"api\", port = 80, local_port = 8080",
            "error[IM0105]: `local_port` 8080 is the target port of port 80",
        ),
        (
            "service = \"api\", port = 80, local_port = 9001, weight = 1",
            "error[IM0102]: an upstream has no key `weight`",
        ),
    ] {
        let reported = findings(&text(&format!("{{ {upstream} }}")));
        assert!(
            reported.iter().any(|finding| finding.starts_with(expected)),
            "{upstream}: {reported:?}"
        );
    }
}

#[test]
fn duplicate_local_port_is_reported_with_the_first() {
    let one = "{ service = \"api\", port = \"web\", local_port = 9001 }";
    let reported = finding(&text(&format!("{one}, {one}")));
    assert!(reported.starts_with("error[IM0202]: local port `9001` is given twice"), "{reported}");
}

#[test]
fn service_has_a_limited_number_of_upstreams() {
    let list = |count: usize| {
        let ports = 20000..20000 + count;
        let one = |port| format!("{{ service = \"api\", port = \"web\", local_port = {port} }}");
        ports.map(one).collect::<Vec<_>>().join(", ")
    };
    assert_eq!(findings(&text(&list(PolicyUpstream::MAX))), Vec::<String>::new());
    let reported = finding(&text(&list(PolicyUpstream::MAX + 1)));
    assert!(reported.starts_with("error[IM0113]: a service has at most 256"), "{reported}");
}

#[test]
fn external_service_has_no_upstreams() {
    let external = "external = true\nhostname = \"till.example\"\n";
    let policy = text("{ service = \"api\", port = \"web\", local_port = 9001 }")
        .replacen("ports =", &format!("{external}ports ="), 1)
        .replace(", target_port = 8080", "");
    let reported = findings(&policy);
    assert!(
        reported.iter().any(|one| one.contains("`upstreams` is for services of the mesh")),
        "{reported:?}"
    );
}
