use ironmesh_catalog::{ConsulQuery, EndpointSource, Providers, ServiceName};

use super::*;

fn text(rest: &str) -> String {
    format!("[[service]]\nname = \"a\"\n{rest}")
}

fn finding_in(rest: &str) -> String {
    finding(&text(rest))
}

/// The providers that a service asks, which has one port and these keys.
fn asked(keys: &str) -> Providers {
    let ports = "ports = [{ port = 80, protocol = \"http\" }]";
    let specification = specification(&text(&format!("{ports}\n{keys}")));
    let source = &specification.services[&"a".parse::<ServiceName>().unwrap()].endpoints;
    source.providers().unwrap().clone()
}

/// A question to Consul that says nothing but the name.
#[test]
fn static_endpoints_are_listed_in_either_form() {
    let inline =
        "[service.endpoints]\nstatic = [{ address = \"10.0.0.5\", port = 8080, weight = 2 }]";
    let tables = "[[service.endpoints.static]]\naddress = \"fd00::1\"";
    let read = |text: &str| {
        let listed = asked(text).fixed;
        (listed[0].address.to_string(), listed[0].port, listed[0].weight)
    };
    assert_eq!(read(inline), ("10.0.0.5".to_owned(), Some(8080), 2));
    assert_eq!(read(tables), ("fd00::1".to_owned(), None, 1));
}

#[test]
fn what_is_wrong_with_static_endpoints_is_told() {
    let endpoints = |list: &str| {
        finding_in(&format!(
            "ports = [{{ port = 80, protocol = \"http\" }}]\nendpoints = {{ static = [{list}] }}"
        ))
    };
    for (list, expected) in [
        ("", "error[IM0304]: `static` is empty"),
        ("{ address = \"store.example.com\" }", "error[IM0105]: `address` must be an IP address"),
        ("{ address = \"0.0.0.0\" }", "error[IM0105]: `address` must be that of one machine"),
        ("{ address = \"10.0.0.1\", weight = 0 }", "error[IM0301]: `weight` must be from 1"),
        ("{ port = 1 }", "error[IM0103]: an endpoint needs `address`"),
        (
            "{ address = \"10.0.0.1\" }, { address = \"10.0.0.1\", port = 80 }",
            "error[IM0202]: endpoint `10.0.0.1` is given twice with the same port",
        ),
    ] {
        let told = endpoints(list);
        assert!(told.starts_with(expected), "{told}");
    }
}

#[test]
fn an_endpoint_of_several_ports_has_no_port_of_its_own() {
    let told = finding_in(
        "ports = [{ name = \"x\", port = 80, protocol = \"http\" }, \
         { name = \"y\", port = 81, protocol = \"http\" }]\n\
         endpoints = { static = [{ address = \"10.0.0.1\", port = 8080 }] }",
    );
    assert!(told.contains("cannot have a `port`") && told.contains("target_port"), "{told}");
}

#[test]
fn endpoints_without_a_port_to_call_them_on_are_a_warning() {
    for endpoints in ["static = [{ address = \"10.0.0.1\" }]", "consul = {}"] {
        let loaded = load_one(&text(&format!("endpoints.{endpoints}")));
        assert!(lines(&loaded)[0].starts_with("warning[IM0105]"), "{endpoints}");
        assert!(loaded.specification.is_some());
    }
    // A pure client may be found by its proxies.
    assert!(load_one(&text("endpoints.registered = true")).findings.is_empty());
}

#[test]
fn consul_is_asked_for_the_name_of_the_service_unless_policy_says_another() {
    for own_name in ["endpoints = { consul = {} }", "[service.endpoints.consul]"] {
        let expected = Providers { consul: Some(ConsulQuery::of("a")), ..Providers::default() };
        assert_eq!(asked(own_name), expected, "{own_name}");
    }
    let all = "[service.endpoints.consul]\nservice = \"Book Store\"\ndatacenter = \"dc1\"\n\
               namespace = \"n\"\npartition = \"p\"\nfilter = 'v1 in Service.Tags'\n\
               tagged_address = \"wan\"";
    let text = |text: &str| Some(text.into());
    let expected = ConsulQuery {
        service: "Book Store".into(),
        datacenter: text("dc1"),
        namespace: text("n"),
        partition: text("p"),
        filter: text("v1 in Service.Tags"),
        tagged_address: text("wan"),
    };
    assert_eq!(asked(all).consul, Some(expected));
}

#[test]
fn several_providers_are_asked_together() {
    let list = "static = [{ address = \"10.0.0.1\" }]";
    let both = asked(&format!("endpoints = {{ {list}, consul = {{}}, registered = true }}"));
    assert_eq!(
        (both.fixed.len(), both.consul, both.registered),
        (1, Some(ConsulQuery::of("a")), true)
    );
    let listed = asked(&format!("endpoints = {{ {list}, registered = false }}"));
    assert_eq!((listed.fixed.len(), listed.consul, listed.registered), (1, None, false));
    // Said or left out, it is the same.
    let joined = asked("endpoints = { registered = true }");
    assert!(EndpointSource::Providers(joined).is_registered());
}

#[test]
fn what_is_wrong_with_providers_is_told() {
    for (endpoints, expected) in [
        ("{}", "error[IM0103]: the endpoints of a service name no provider (p.toml:4:13)"),
        ("{ registered = false }", "error[IM0103]: the endpoints of a service name no provider"),
        ("{ registered = \"yes\" }", "error[IM0104]: `registered` must be `true` or `false`"),
        ("{ consul = true }", "error[IM0104]: `consul` must be a table, not a boolean"),
        ("{ consul = { service = \"\" } }", "error[IM0105]: `service` must be 1 to 256 characters"),
        ("{ consul = { filter = \"a\\nb\" } }", "error[IM0105]: `filter` must be 1 to 4096"),
        ("{ consul = { dc = \"x\" } }", "error[IM0102]: what Consul is asked for has no key `dc`"),
        ("{ azure_vm = {} }", "error[IM0108]: `azure_vm` is not served by this version"),
        (
            "{ registered = true, Consul = {} }",
            "error[IM0102]: the endpoints of a service has no key `Consul`",
        ),
    ] {
        let ports = "ports = [{ port = 80, protocol = \"http\" }]";
        let told = finding_in(&format!("{ports}\nendpoints = {endpoints}"));
        assert!(told.starts_with(expected), "{endpoints}\n{told}");
    }
    let long =
        |length| asked(&format!("[service.endpoints.consul]\nfilter = '{}'", "é".repeat(length)));
    assert_eq!(long(4096).consul.unwrap().filter.unwrap().chars().count(), 4096);
    let longer = format!("[service.endpoints.consul]\nfilter = '{}'", "é".repeat(4097));
    assert!(finding_in(&longer).starts_with("error[IM0105]: `filter` must be 1 to 4096"));
}

#[test]
fn a_service_without_a_name_is_told_for_that_alone() {
    let told = finding("[[service]]\nendpoints = { consul = {} }\n");
    assert!(told.starts_with("error[IM0103]: a service needs `name`"), "{told}");
}
