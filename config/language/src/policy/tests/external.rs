//! External services.

use ironmesh_catalog::{EndpointSource, External, Hostname, Resolution, Service, ServiceName};

use super::*;

/// An external service with these keys, and a port of `protocol`.
fn text(protocol: &str, keys: &str) -> String {
    format!(
        "[[service]]\nname = \"a\"\nexternal = true\n{keys}\n\
         ports = [{{ port = 443, protocol = \"{protocol}\" }}]\n"
    )
}

fn external(protocol: &str, keys: &str) -> (External, EndpointSource) {
    let specification = specification(&text(protocol, keys));
    let service = &specification.services[&"a".parse::<ServiceName>().unwrap()];
    let Service { external, endpoints, .. } = Service::clone(service);
    (external.unwrap(), endpoints)
}

#[test]
fn external_service_uses_dns_static_list_or_passthrough() {
    let hostname = |text: &str| Some(Hostname::new(text).unwrap());
    let (known, endpoints) = external("tls", "hostname = \"API.example.com\"");
    let dns = External { hostname: hostname("api.example.com"), resolution: Resolution::Dns };
    assert_eq!((known, endpoints), (dns, EndpointSource::Hostname));

    let list = "endpoints = { static = [{ address = \"203.0.113.7\" }] }";
    let (known, endpoints) = external("http", list);
    assert_eq!(known, External { hostname: None, resolution: Resolution::Static });
    assert!(endpoints.providers().is_some_and(|queried| queried.fixed.len() == 1));

    let (known, endpoints) =
        external("http", "hostname = \"*.example.com\"\nresolution = \"passthrough\"");
    let resolution = Resolution::Passthrough;
    assert_eq!(known, External { hostname: hostname("*.example.com"), resolution });
    assert_eq!(endpoints, EndpointSource::Hostname);
}

#[test]
fn invalid_external_service_is_reported() {
    let list = "endpoints = { static = [{ address = \"203.0.113.7\" }] }";
    for (protocol, keys, expected) in [
        ("tls", "", "error[IM0103]: a service needs `hostname`"),
        ("tls", "hostname = \"localhost\"", "error[IM0106]: `hostname` has one label only"),
        ("tls", "hostname = \"203.0.113.7\"", "error[IM0106]: `hostname` is an address"),
        ("tls", "hostname = \"a b.example\"", "error[IM0106]: `hostname` may only have labels"),
        ("http", "hostname = \"*.a.example\"", "error[IM0105]: a hostname with `*` can only"),
        (
            "tls",
            "hostname = \"*.a.example\"\nresolution = \"passthrough\"",
            "error[IM0105]: port `443` cannot be passed through",
        ),
        (
            "http",
            "hostname = \"a.example\"\nresolution = \"static\"",
            "error[IM0105]: an external service of resolution `static` has no endpoints",
        ),
        (
            "http",
            &format!("resolution = \"dns\"\n{list}"),
            "error[IM0105]: an external service with a list of endpoints does not use DNS",
        ),
        (
            "http",
            "hostname = \"a.example\"\nendpoints = { consul = {} }",
            "error[IM0105]: the endpoints of an external service are looked up by its hostname, or",
        ),
        (
            "http",
            "endpoints = { azure_scale_set = { name = \"a\" } }",
            "error[IM0105]: the endpoints of an external service are looked up by its hostname, or",
        ),
        (
            "http",
            "endpoints = { registered = true }",
            "error[IM0105]: the endpoints of an external service are looked up by its hostname, or",
        ),
        (
            "http",
            "hostname = \"a.example\"\nstate = \"drained\"",
            "error[IM0105]: an external service cannot be drained",
        ),
        (
            "http",
            "hostname = \"a.example\"\nmax_connection_duration = \"1h\"",
            "error[IM0105]: `max_connection_duration` is for services of the mesh",
        ),
        (
            "http",
            "hostname = \"a.example\"\nresolution = \"DNSLB\"",
            "error[IM0105]: there is no resolution `DNSLB`",
        ),
        (
            "http",
            "hostname = \"a.example\"\nsubsets = [{ name = \"b\", labels = { v = \"1\" } }]",
            "error[IM0105]: an external service has no subsets",
        ),
    ] {
        let reported = finding(&text(protocol, keys));
        assert!(reported.starts_with(expected), "{reported}");
    }
    let reported = finding("[[service]]\nname = \"a\"\nhostname = \"a.example\"\n");
    assert!(
        reported.starts_with("error[IM0105]: `hostname` is only for external services"),
        "{reported}"
    );
}

#[test]
fn hostname_and_port_belong_to_one_external_service() {
    let other = "[[service]]\nname = \"b\"\nexternal = true\nhostname = \"a.example\"\n\
                 ports = [{ port = 443, protocol = \"tls\" }]\n";
    let both = text("tls", "hostname = \"A.example\"") + other;
    let reported = finding(&both);
    assert!(
        reported.starts_with("error[IM0202]: two services have port `443` of `a.example`"),
        "{reported}"
    );
    specification(
        &both.replace(
            "port = 443, protocol = \"tls\" }]\n[[",
            "port = 80, protocol = \"http\" }]\n[[",
        ),
    );
}

#[test]
fn hostname_without_port_belongs_to_one_external_service() {
    let other = "[[service]]\nname = \"b\"\nexternal = true\nhostname = \"a.example\"\n\
                 ports = [{ port = 8080, protocol = \"http\" }]\n";
    let both = text("http", "hostname = \"a.example\"") + other;
    let reported = finding(&both);
    assert!(
        reported
            .starts_with("error[IM0202]: two services have hostname `a.example` without a port"),
        "{reported}"
    );
    // One of them has two HTTP ports, so its callers always give a port, and nothing is ambiguous.
    specification(&both.replace(
        "port = 8080, protocol = \"http\" }",
        "name = \"a\", port = 8080, protocol = \"http\" }, \
         { name = \"b\", port = 8081, protocol = \"http\" }",
    ));
}

#[test]
fn external_hostname_of_a_mesh_service_is_rejected() {
    let own = "[[service]]\nname = \"till\"\nnamespace = \"shop\"\n";
    let reported = finding(&(text("http", "hostname = \"till.shop\"") + own));
    let expected = "error[IM0202]: hostname `till.shop` already belongs to service `shop/till`";
    assert!(reported.starts_with(expected), "{reported}");
    specification(&(text("http", "hostname = \"till.shop.example\"") + own));
}

#[test]
fn external_service_in_a_traffic_split_is_rejected() {
    let split = |service: &str, backend: &str| {
        format!(
            "{}[[service]]\nname = \"m\"\nports = [{{ port = 443, protocol = \"tls\" }}]\n\
             [[traffic_split]]\nname = \"s\"\nservice = \"{service}\"\n\
             backends = [{{ service = \"{backend}\", weight = 1 }}]\n",
            text("tls", "hostname = \"a.example\"")
        )
    };
    for text in [split("a", "m"), split("m", "a")] {
        let reported = finding(&text);
        assert!(
            reported.starts_with("error[IM0303]: splits cannot use external service `a`"),
            "{reported}"
        );
    }
}
