//! `endpoints` of services: static lists, enrolled proxies, and queries to Consul and Azure.

use std::collections::BTreeMap;
use std::sync::Arc;

use ironmesh_catalog::{
    AddressFamily, AzureMachines, AzureQuery, ConsulQuery, EndpointSource, JoinRank, Providers,
    ServiceName,
};

use super::*;

fn text(rest: &str) -> String {
    format!("[[service]]\nname = \"a\"\n{rest}")
}

fn finding_in(rest: &str) -> String {
    finding(&text(rest))
}

/// The providers that a service with one port and these keys queries.
fn queried(keys: &str) -> Providers {
    let ports = "ports = [{ port = 80, protocol = \"http\" }]";
    let specification = specification(&text(&format!("{ports}\n{keys}")));
    let source = &specification.services[&"a".parse::<ServiceName>().unwrap()].endpoints;
    source.providers().unwrap().clone()
}

#[test]
fn static_endpoints_are_read_inline_or_as_tables() {
    let inline =
        "[service.endpoints]\nstatic = [{ address = \"10.0.0.5\", port = 8080, weight = 2 }]";
    let tables = "[[service.endpoints.static]]\naddress = \"fd00::1\"";
    let read = |text: &str| {
        let listed = queried(text).fixed;
        (listed[0].address.to_string(), listed[0].port, listed[0].weight)
    };
    assert_eq!(read(inline), ("10.0.0.5".to_owned(), Some(8080), 2));
    assert_eq!(read(tables), ("fd00::1".to_owned(), None, 1));
}

#[test]
fn invalid_static_endpoint_is_reported() {
    let endpoints = |list: &str| {
        finding_in(&format!(
            "ports = [{{ port = 80, protocol = \"http\" }}]\nendpoints = {{ static = [{list}] }}"
        ))
    };
    for (list, expected) in [
        ("", "error[IM0304]: `static` is empty"),
        ("{ address = \"store.example.com\" }", "error[IM0105]: `address` must be an IP address"),
        (
            "{ address = \"0.0.0.0\" }",
            "error[IM0105]: `address` must be the address of one machine",
        ),
        ("{ address = \"10.0.0.1\", weight = 0 }", "error[IM0301]: `weight` must be from 1"),
        ("{ port = 1 }", "error[IM0103]: an endpoint needs `address`"),
        (
            "{ address = \"10.0.0.1\" }, { address = \"10.0.0.1\", port = 80 }",
            "error[IM0202]: endpoint `10.0.0.1` is given twice with the same port",
        ),
    ] {
        let reported = endpoints(list);
        assert!(reported.starts_with(expected), "{reported}");
    }
}

#[test]
fn static_endpoint_of_multi_port_service_must_not_set_a_port() {
    let reported = finding_in(
        "ports = [{ name = \"x\", port = 80, protocol = \"http\" }, \
         { name = \"y\", port = 81, protocol = \"http\" }]\n\
         endpoints = { static = [{ address = \"10.0.0.1\", port = 8080 }] }",
    );
    assert!(
        reported.contains("cannot have a `port`") && reported.contains("target_port"),
        "{reported}"
    );
}

#[test]
fn endpoints_of_a_service_without_ports_are_a_warning() {
    for endpoints in [
        "static = [{ address = \"10.0.0.1\" }]",
        "consul = {}",
        "azure_vm = { tags = { a = \"b\" } }",
        "azure_scale_set = { name = \"a\" }",
    ] {
        let loaded = load_one(&text(&format!("endpoints.{endpoints}")));
        assert!(lines(&loaded)[0].starts_with("warning[IM0105]"), "{endpoints}");
        assert!(loaded.specification.is_some());
    }
    // A service without ports may use registered endpoints.
    assert!(load_one(&text("endpoints.registered = true")).findings.is_empty());
}

#[test]
fn consul_query_defaults_to_the_service_name() {
    for own_name in ["endpoints = { consul = {} }", "[service.endpoints.consul]"] {
        let expected = Providers { consul: Some(ConsulQuery::of("a")), ..Providers::default() };
        assert_eq!(queried(own_name), expected, "{own_name}");
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
    assert_eq!(queried(all).consul, Some(expected));
}

#[test]
fn service_combines_several_providers() {
    let list = "static = [{ address = \"10.0.0.1\" }]";
    let both = queried(&format!("endpoints = {{ {list}, consul = {{}}, registered = true }}"));
    assert_eq!(
        (both.fixed.len(), both.consul, both.registered),
        (1, Some(ConsulQuery::of("a")), true)
    );
    let listed = queried(&format!("endpoints = {{ {list}, registered = false }}"));
    assert_eq!((listed.fixed.len(), listed.consul, listed.registered), (1, None, false));
    // The explicit setting equals the default.
    let enrolled = queried("endpoints = { registered = true }");
    assert!(EndpointSource::Providers(enrolled).is_registered());
}

#[test]
fn invalid_provider_query_is_reported() {
    for (endpoints, expected) in [
        ("{}", "error[IM0103]: the endpoints of a service name no provider (p.toml:4:13)"),
        ("{ registered = false }", "error[IM0103]: the endpoints of a service name no provider"),
        ("{ registered = \"yes\" }", "error[IM0104]: `registered` must be `true` or `false`"),
        ("{ consul = true }", "error[IM0104]: `consul` must be a table, not a boolean"),
        ("{ consul = { service = \"\" } }", "error[IM0105]: `service` must be 1 to 256 characters"),
        ("{ consul = { filter = \"a\\nb\" } }", "error[IM0105]: `filter` must be 1 to 4096"),
        ("{ consul = { dc = \"x\" } }", "error[IM0102]: a Consul query has no key `dc`"),
        ("{ azure_vm = {} }", "error[IM0103]: a virtual machine query needs `tags`"),
        ("{ azure_vm = [] }", "error[IM0304]: `azure_vm` is empty"),
        ("{ azure_scale_set = {} }", "error[IM0103]: the query selects no scale set"),
        ("{ azure_scale_set = { tags = {} } }", "error[IM0304]: `tags` is empty"),
        ("{ azure_vm = { tags = { a = 1 } } }", "error[IM0104]: `a` must be a string"),
        (
            "{ azure_vm = { tags = { \"a/b\" = \"x\" } } }",
            "error[IM0105]: no tag in Azure has this",
        ),
        (
            "{ azure_vm = { tags = { a = \"x\\ny\" } } }",
            "error[IM0105]: the value of a tag has at most",
        ),
        (
            "{ azure_vm = { tags = { Env = \"x\", env = \"y\" } } }",
            "error[IM0105]: the tag `env` is given twice",
        ),
        (
            "{ azure_vm = { name = \"x\", tags = { a = \"b\" } } }",
            "error[IM0102]: a virtual machine query has no key `name`",
        ),
        (
            "{ registered = true, Consul = {} }",
            "error[IM0102]: the endpoints of a service has no key `Consul`",
        ),
    ] {
        let ports = "ports = [{ port = 80, protocol = \"http\" }]";
        let reported = finding_in(&format!("{ports}\nendpoints = {endpoints}"));
        assert!(reported.starts_with(expected), "{endpoints}\n{reported}");
    }
    let long =
        |length| queried(&format!("[service.endpoints.consul]\nfilter = '{}'", "é".repeat(length)));
    assert_eq!(long(4096).consul.unwrap().filter.unwrap().chars().count(), 4096);
    let longer = format!("[service.endpoints.consul]\nfilter = '{}'", "é".repeat(4097));
    assert!(finding_in(&longer).starts_with("error[IM0105]: `filter` must be 1 to 4096"));
}

#[test]
fn azure_query_selects_scale_sets_and_machines() {
    let set = |name: &str| AzureQuery {
        machines: AzureMachines::ScaleSet(Some(name.into())),
        subscription: None,
        resource_group: None,
        tags: BTreeMap::new(),
        port: None,
        address_family: AddressFamily::Ipv4,
        join: None,
    };
    let small = queried("endpoints = { azure_scale_set = { name = \"Shop_web-1\" } }");
    assert_eq!(small, Providers { azure: vec![set("shop_web-1")], ..Providers::default() });
    // Azure ignores case in names, so equal queries count once.
    let several = queried(
        "endpoints.azure_scale_set = [{ name = \"b\" }, { name = \"a\" }, { name = \"A\" }]",
    );
    assert_eq!(several.azure, [set("a"), set("b")]);
    let all = "[service.endpoints.azure_scale_set]\ntags = { Team = \"Retail\" }\n\
               subscription = \"ABCDEF00-1111-2222-3333-444444444444\"\n\
               resource_group = \"Läden(West).1\"\nport = 8080\naddress_family = \"ipv6\"\n\
               [service.endpoints.azure_vm]\ntags = { \"it's\" = \"' | take 1\", empty = \"\" }";
    let tags = |tags: &[(&str, &str)]| -> BTreeMap<Arc<str>, Arc<str>> {
        tags.iter().map(|(name, value)| ((*name).into(), (*value).into())).collect()
    };
    let by_tag = AzureQuery {
        machines: AzureMachines::ScaleSet(None),
        subscription: Some("abcdef00-1111-2222-3333-444444444444".into()),
        resource_group: Some("läden(west).1".into()),
        tags: tags(&[("team", "Retail")]),
        port: Some(8080),
        address_family: AddressFamily::Ipv6,
        join: None,
    };
    let machines = AzureQuery {
        machines: AzureMachines::VirtualMachines,
        tags: tags(&[("it's", "' | take 1"), ("empty", "")]),
        ..set("")
    };
    assert_eq!(queried(all).azure, [by_tag, machines]);
}

#[test]
fn machines_join_only_where_policy_says_so() {
    let set = "endpoints.azure_scale_set = { name = \"web\"";
    let join = |word| queried(&format!("{set}, join = \"{word}\" }}")).azure[0].join;
    assert_eq!(join("primary"), Some(JoinRank::Primary));
    assert_eq!(join("secondary"), Some(JoinRank::Secondary));
    assert_eq!(queried(&format!("{set} }}")).azure[0].join, None);
    let client = |join: &str| load_one(&text(&format!("ports = []\n{set}{join} }}"))).findings;
    assert_eq!(client(", join = \"primary\""), [], "a pure client needs no ports");
    assert!(client("")[0].to_string().contains("so nothing can call them"));
    let reported = finding_in(&format!("{set}, join = \"yes\" }}"));
    assert!(reported.contains("`primary`") && reported.contains("`secondary`"), "{reported}");
}

/// Names become part of URLs and of Azure Resource Graph queries.
#[test]
fn invalid_azure_name_is_rejected() {
    let reported = |key: &str, value: &str| {
        let ports = "ports = [{ port = 80, protocol = \"http\" }]";
        let azure = format!(
            "[service.endpoints.azure_scale_set]\ntags = {{ a = \"b\" }}\n{key} = '''{value}'''"
        );
        load_one(&text(&format!("{ports}\n{azure}")))
            .findings
            .iter()
            .map(ToString::to_string)
            .collect::<Vec<_>>()
    };
    let everywhere = [
        "",
        " ",
        "a b",
        "a/b",
        "../a",
        "a?x=1",
        "a#b",
        "a%2f",
        "a' or 1==1 | take 5 //",
        "a\"b",
        "a\\b",
        "a|b",
        "a\nb",
        "a\u{0}b",
        "a;b",
        "a:b",
        "a@b",
        "a.",
        ".",
        "..",
    ];
    let longest = |more: usize| "a".repeat(64 + more);
    let (name, long_name, long_group, group) =
        (longest(0), longest(1), longest(27), "ä".repeat(90));
    let cases = [
        ("name", &["-a", "_a", "a-", "ä", &long_name][..], &["a", "A_b-1", &name][..]),
        ("resource_group", &[&long_group], &["a.b", "(a)", "-", &group]),
        (
            "subscription",
            &["a", "00000000-1111-2222-3333-44444444444g", "00000000111122223333444444444444"],
            &["00000000-1111-2222-3333-444444444444"],
        ),
    ];
    for (key, bad, good) in cases {
        for value in everywhere.iter().chain(bad) {
            let reported = reported(key, value);
            // For a value that breaks the TOML syntax, the parser reports IM0101 instead.
            let is_reported = reported
                .iter()
                .any(|one| one.contains(&format!("`{key}` must be the")) || one.contains("IM0101"));
            assert!(is_reported, "{key} = {value:?}: {reported:?}");
        }
        for value in good {
            let reported = reported(key, value);
            assert!(
                !reported.iter().any(|one| one.contains(key)),
                "{key} = {value:?}: {reported:?}"
            );
        }
    }
}

#[test]
fn azure_query_port_requires_a_service_with_one_port() {
    let ports = "ports = [{ name = \"a\", port = 80, protocol = \"http\" }, { name = \"b\", port = 81, protocol = \"http\" }]";
    let reported = finding_in(&format!(
        "{ports}\nendpoints = {{ azure_vm = {{ tags = {{ a = \"b\" }}, port = 80 }} }}"
    ));
    assert!(
        reported.starts_with("error[IM0105]: an endpoint of a service with several ports cannot"),
        "{reported}"
    );
}

#[test]
fn service_without_name_reports_only_the_missing_name() {
    let reported = finding("[[service]]\nendpoints = { consul = {} }\n");
    assert!(reported.starts_with("error[IM0103]: a service needs `name`"), "{reported}");
}
