use ironmesh_catalog::{EndpointSource, Protocol, Providers, Service, ServiceName, Visibility};

use super::*;

fn service(rest: &str) -> Service {
    let specification = specification(&format!("[[service]]\nname = \"a\"\n{rest}"));
    Service::clone(specification.services.get(&"a".parse::<ServiceName>().unwrap()).unwrap())
}

fn finding_in(rest: &str) -> String {
    finding(&format!("[[service]]\nname = \"a\"\n{rest}"))
}

#[test]
fn a_service_has_defaults() {
    let service = service("ports = [{ port = 80, protocol = \"grpc\" }]");
    assert_eq!(service.account.to_string(), "default/a");
    assert_eq!(service.endpoints, EndpointSource::registered());
    let port = &service.ports[0];
    assert_eq!((port.name.as_str(), port.number, port.target), ("port-80", 80, 80));
    assert_eq!(port.protocol, Protocol::Grpc);
}

#[test]
fn ports_are_sorted_by_number() {
    let service = service(
        "ports = [{ name = \"b\", port = 81, protocol = \"http\" }, \
         { name = \"a\", port = 80, protocol = \"http2\" }]",
    );
    assert_eq!(service.ports.iter().map(|port| port.number).collect::<Vec<_>>(), [80, 81]);
}

#[test]
fn a_port_must_say_its_protocol_and_one_that_is_carried() {
    assert_eq!(
        finding_in("ports = [{ port = 80 }]"),
        "error[IM0103]: a port needs `protocol` (p.toml:3:10)"
    );
    assert_eq!(
        finding_in("ports = [{ port = 80, protocol = \"udp\" }]"),
        "error[IM0108]: protocol `udp` is not served (p.toml:3:34) / the mesh carries HTTP and TCP: \
         UDP has no handshake in which to judge a caller"
    );
    for (word, protocol) in Protocol::ALL {
        let read = service(&format!("ports = [{{ port = 80, protocol = \"{word}\" }}]"));
        assert_eq!((read.ports[0].protocol, &*protocol.to_string()), (protocol, word));
    }
    let told = finding_in("ports = [{ port = 80, protocol = \"GRPC-Web\" }]");
    assert!(told.ends_with("did you mean `grpc-web`?"), "{told}");
    assert!(
        finding_in("ports = [{ port = 80, protocol = \"HTPP\" }]")
            .ends_with("did you mean `http`?")
    );
}

#[test]
fn port_numbers_are_checked() {
    for bad in ["0", "65536", "-1", "99999999999999999999999"] {
        let text = format!("ports = [{{ port = {bad}, protocol = \"http\" }}]");
        assert!(finding_in(&text).starts_with("error[IM0105]: `port` must be from 1 to 65535"));
    }
}

#[test]
fn ports_of_one_service_differ_in_number_and_name() {
    let two = |a: &str, b: &str| {
        finding_in(&format!(
            "ports = [{{ {a}, protocol = \"http\" }}, {{ {b}, protocol = \"http\" }}]"
        ))
    };
    let number = two("name = \"x\", port = 80", "name = \"y\", port = 80");
    assert!(number.starts_with("error[IM0202]: port number `80` is given twice"), "{number}");
    let name = two("name = \"x\", port = 80", "name = \"x\", port = 81");
    assert!(name.starts_with("error[IM0202]: port name `x` is given twice"), "{name}");
    let none = two("name = \"x\", port = 80", "port = 81");
    assert!(none.starts_with("error[IM0103]: a port needs `name`"), "{none}");
}

#[test]
fn static_endpoints_are_listed_in_either_form() {
    let ports = "ports = [{ port = 80, protocol = \"http\" }]\n";
    let inline =
        "[service.endpoints]\nstatic = [{ address = \"10.0.0.5\", port = 8080, weight = 2 }]";
    let tables = "[[service.endpoints.static]]\naddress = \"fd00::1\"";
    let read = |text: &str| match service(&format!("{ports}{text}")).endpoints {
        EndpointSource::Providers(Providers { fixed: listed, .. }) => {
            (listed[0].address.to_string(), listed[0].port, listed[0].weight)
        }
        other => panic!("no list: {other:?}"),
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
fn other_sources_of_endpoints_are_not_served_yet() {
    assert_eq!(
        finding_in("[service.endpoints.consul]\nservice = \"bookstore\""),
        "error[IM0108]: `consul` is not served by this version (p.toml:3:20) / this version knows \
         static lists and the proxies that joined"
    );
    assert!(finding_in("endpoints = {}").starts_with("error[IM0103]"));
}

#[test]
fn a_subset_is_a_service_of_its_own_name_with_all_else_of_the_whole() {
    let specification = specification(
        "[[service]]\nname = \"a\"\nnamespace = \"shop\"\nservice_account = \"b\"\n\
         visibility = \"private\"\nmode = \"permissive\"\n\
         ports = [{ port = 80, protocol = \"http\", target_port = 8080 }]\n\
         subsets = [{ name = \"a-v1\", labels = { version = \"v1\" } }]",
    );
    let service =
        |name: &str| specification.services[&name.parse::<ServiceName>().unwrap()].clone();
    let (whole, part) = (service("shop/a"), service("shop/a-v1"));
    assert_eq!(whole.subsets.iter().collect::<Vec<_>>(), [&part.name]);
    let endpoints = EndpointSource::Subset {
        of: whole.name.clone(),
        labels: [("version", "v1")].into_iter().collect(),
    };
    let expected = Service {
        name: part.name.clone(),
        endpoints,
        subsets: Vec::new(),
        spot: part.spot.clone(),
        ..Service::clone(&whole)
    };
    assert_eq!(*part, expected);
    assert_eq!(part.spot.line, 8);
}

#[test]
fn what_is_wrong_with_subsets_is_told() {
    for (subsets, expected) in [
        ("[]", "error[IM0304]: `subsets` is empty"),
        ("[{ name = \"p\" }]", "error[IM0103]: a subset needs `labels`"),
        ("[{ name = \"p\", labels = {} }]", "error[IM0304]: `labels` is empty"),
        (
            "[{ name = \"a\", labels = { v = \"1\" } }]",
            "error[IM0202]: service `a` is defined twice",
        ),
        ("[{ labels = { v = \"1\" } }]", "error[IM0103]: a subset needs `name`"),
        (
            "[{ name = \"p\", labels = { v = \"1\" }, ports = [] }]",
            "error[IM0102]: a subset has no key",
        ),
    ] {
        let told = finding_in(&format!("subsets = {subsets}"));
        assert!(told.starts_with(expected), "{told}");
    }
    // One that is broken is there all the same, for those who name it.
    let split = "\n[[traffic_split]]\nname = \"s\"\nservice = \"a\"\n\
                 backends = [{ service = \"p\", weight = 1 }]";
    let told = finding_in(&format!("subsets = [{{ name = \"p\", labels = {{ v = 1 }} }}]{split}"));
    assert!(told.starts_with("error[IM0104]"), "{told}");
}

#[test]
fn visibility_is_one_of_two_words() {
    assert_eq!(service("visibility = \"private\"").visibility, Visibility::Private);
    assert_eq!(service("").visibility, Visibility::Public);
    let told = finding_in("visibility = \"Privat\"");
    assert!(told.starts_with("error[IM0105]: there is no visibility `Privat`"), "{told}");
    assert!(told.ends_with("did you mean `private`?"), "{told}");
}

#[test]
fn endpoints_without_a_port_to_call_them_on_are_a_warning() {
    let loaded =
        load_one("[[service]]\nname = \"a\"\nendpoints.static = [{ address = \"10.0.0.1\" }]");
    assert!(lines(&loaded)[0].starts_with("warning[IM0105]"));
    assert!(loaded.specification.is_some());
}
