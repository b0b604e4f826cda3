//! `[[service]]`.

use ironmesh_catalog::{EndpointSource, Protocol, Service, ServiceName, Visibility};

use super::*;

fn service(rest: &str) -> Service {
    let specification = specification(&format!("[[service]]\nname = \"a\"\n{rest}"));
    Service::clone(specification.services.get(&"a".parse::<ServiceName>().unwrap()).unwrap())
}

fn finding_in(rest: &str) -> String {
    finding(&format!("[[service]]\nname = \"a\"\n{rest}"))
}

#[test]
fn service_has_documented_defaults() {
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
fn port_requires_a_supported_protocol() {
    assert_eq!(
        finding_in("ports = [{ port = 80 }]"),
        "error[IM0103]: a port needs `protocol` (p.toml:3:10)"
    );
    assert_eq!(
        finding_in("ports = [{ port = 80, protocol = \"udp\" }]"),
        "error[IM0108]: protocol `udp` is not served (p.toml:3:34) / the mesh carries HTTP and TCP: \
         UDP has no handshake in which to verify a caller"
    );
    for (word, protocol) in Protocol::ALL {
        let read = service(&format!("ports = [{{ port = 80, protocol = \"{word}\" }}]"));
        assert_eq!((read.ports[0].protocol, &*protocol.to_string()), (protocol, word));
    }
    let reported = finding_in("ports = [{ port = 80, protocol = \"GRPC-Web\" }]");
    assert!(reported.ends_with("did you mean `grpc-web`?"), "{reported}");
    assert!(
        finding_in("ports = [{ port = 80, protocol = \"HTPP\" }]")
            .ends_with("did you mean `http`?")
    );
}

#[test]
fn out_of_range_port_number_is_rejected() {
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
fn subset_inherits_all_but_name_and_endpoints() {
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
fn invalid_subset_is_reported() {
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
        let reported = finding_in(&format!("subsets = {subsets}"));
        assert!(reported.starts_with(expected), "{reported}");
    }
    // A broken subset counts as defined, so that references to it cause no further findings.
    let split = "\n[[traffic_split]]\nname = \"s\"\nservice = \"a\"\n\
                 backends = [{ service = \"p\", weight = 1 }]";
    let reported =
        finding_in(&format!("subsets = [{{ name = \"p\", labels = {{ v = 1 }} }}]{split}"));
    assert!(reported.starts_with("error[IM0104]"), "{reported}");
}

#[test]
fn visibility_is_public_or_private() {
    assert_eq!(service("visibility = \"private\"").visibility, Visibility::Private);
    assert_eq!(service("").visibility, Visibility::Public);
    let reported = finding_in("visibility = \"Privat\"");
    assert!(reported.starts_with("error[IM0105]: there is no visibility `Privat`"), "{reported}");
    assert!(reported.ends_with("did you mean `private`?"), "{reported}");
}

#[test]
fn drained_state_applies_to_subsets_and_keeps_other_settings() {
    let subsets = "subsets = [{ name = \"p\", labels = { v = \"1\" } }]";
    let with =
        |state: &str| specification(&format!("[[service]]\nname = \"a\"\n{state}\n{subsets}"));
    for (state, drained) in
        [("", false), ("state = \"active\"", false), ("state = \"drained\"", true)]
    {
        let (active, one) = (with(""), with(state));
        for name in ["a", "p"] {
            let find = |one: &MeshSpecification| {
                Service::clone(&one.services[&name.parse::<ServiceName>().unwrap()])
            };
            let spot = find(&one).spot;
            assert_eq!(find(&one), Service { drained, spot, ..find(&active) }, "{name}, {state}");
        }
    }
    let reported = finding_in("state = \"draining\"");
    assert!(reported.starts_with("error[IM0105]: there is no state `draining`"), "{reported}");
    assert!(reported.ends_with("it is one of `active` and `drained`"), "{reported}");
}

#[test]
fn allowed_target_ports_need_valid_ranges_and_a_single_port() {
    let with = |ports: &str| {
        format!(
            "[[service]]\nname = \"a\"\nports = [{{ port = 80, protocol = \"http\"{ports} }}]\n"
        )
    };
    let allowed = |text: &str| {
        let specification = specification(text);
        let service = specification.services.values().next().unwrap();
        let ranges: Vec<_> =
            service.ports[0].allowed_targets.iter().map(ToString::to_string).collect();
        ranges.join(" ")
    };
    assert_eq!(allowed(&with("")), "");
    let both = with(", allowed_target_ports = [8081, \"20000-32000\"]");
    assert_eq!(allowed(&both), "8081 20000-32000");
    for (ports, reported) in [
        ("[]", "error[IM0304]: `allowed_target_ports` is empty"),
        ("[\"2-1\"]", "error[IM0105]: `2-1` is no range of ports"),
        ("[15014]", "error[IM0105]: `15014` includes ports of Ironmesh itself: 15014 to 15014"),
        ("[\"1-65535\"]", "error[IM0105]: `1-65535` includes ports of Ironmesh itself: 15000 to"),
    ] {
        let finding = finding(&with(&format!(", allowed_target_ports = {ports}")));
        assert!(finding.starts_with(reported), "{finding}");
    }
    let several = "[[service]]\nname = \"a\"\nports = [\n\
                   { name = \"a\", port = 80, protocol = \"http\", allowed_target_ports = [81] },\n\
                   { name = \"b\", port = 82, protocol = \"http\" }]\n";
    assert!(finding(several).contains("a service with several ports cannot have"), "{several}");
}

#[test]
fn max_connection_duration_is_from_one_second_to_thirty_days() {
    let text =
        |value: &str| format!("[[service]]\nname = \"a\"\nmax_connection_duration = \"{value}\"\n");
    for (value, seconds) in [("1s", 1), ("1h 30m", 5_400), ("30d", 30 * 24 * 3600)] {
        let specification = specification(&text(value));
        let service = &specification.services[&"a".parse::<ServiceName>().unwrap()];
        assert_eq!(service.max_connection_duration, Some(std::time::Duration::from_secs(seconds)));
    }
    for value in ["999ms", "31d"] {
        let reported = finding(&text(value));
        assert!(
            reported.contains("`max_connection_duration` must be from 1s to 30d"),
            "{reported}"
        );
    }
}
