//! `[[egress]]`.

use std::fmt::Write;

use ironmesh_catalog::{EgressMode, Name};

use super::*;

const CALLER: &str = "[[service]]\nname = \"till\"\n";

/// An egress of the till, in which these keys replace the default ones.
fn text(keys: &[(&str, &str)]) -> String {
    let usual = [
        ("sources", "[{ name = \"till\" }]"),
        ("hosts", "[\"api.example.com\"]"),
        ("ports", "[{ number = 80, protocol = \"http\" }]"),
    ];
    let mut text = format!("{CALLER}[[egress]]\nname = \"e\"\n");
    let is_given = |key: &str| keys.iter().any(|(given, _)| *given == key);
    let others = usual.iter().filter(|(key, _)| !is_given(key));
    for (key, value) in others.chain(keys).filter(|(_, value)| !value.is_empty()) {
        writeln!(text, "{key} = {value}").unwrap();
    }
    text
}

#[test]
fn egress_hosts_addresses_and_ports_are_normalized_and_unique() {
    let specification = specification(&text(&[
        ("hosts", "[\"API.example.com\", \"api.example.com\", \"*.example.org\"]"),
        ("ip_addresses", "[\"10.1.0.0/16\", \"2001:db8::/32\"]"),
        (
            "ports",
            "[{ number = 443, protocol = \"https\" }, { number = 80, protocol = \"http\" }, \
                    { number = 443, protocol = \"https\" }]",
        ),
    ]));
    let egress = specification.egresses.values().next().unwrap();
    let hosts: Vec<_> = egress.hosts.iter().map(ToString::to_string).collect();
    assert_eq!(hosts, ["api.example.com", "*.example.org"]);
    let ports: Vec<_> = egress.ports.iter().map(|port| port.number).collect();
    assert_eq!(ports, [80, 443]);
    assert_eq!(egress.ip_addresses[0].to_string(), "10.1.0.0/16");
    assert_eq!(egress.spot.to_string(), "p.toml:4:8");
}

#[test]
fn invalid_egress_is_reported() {
    for (keys, expected) in [
        (("sources", "[]"), "error[IM0304]: `sources` is empty (p.toml:7:11)"),
        (("sources", ""), "error[IM0103]: an egress needs `sources`"),
        (("sources", "[{ name = \"tilll\" }]"), "error[IM0201]: no service runs as `tilll`"),
        (
            ("sources", "[{ kind = \"IdentityBinding\", name = \"till\" }]"),
            "error[IM0105]: there is no kind of source `IdentityBinding`",
        ),
        (("hosts", "[]"), "error[IM0304]: `hosts` is empty"),
        (("hosts", "[\"localhost\"]"), "error[IM0106]: `hosts` has one label only"),
        (("hosts", "[\"10.1.2.3\"]"), "error[IM0106]: `hosts` is an address, not a name"),
        (("hosts", "[\"a b.example\"]"), "error[IM0106]: `hosts` may only have labels"),
        (("hosts", ""), "error[IM0103]: an egress needs `hosts` or `ip_addresses`"),
        (("ports", "[]"), "error[IM0304]: `ports` is empty"),
        (
            ("ports", "[{ number = 0, protocol = \"http\" }]"),
            "error[IM0105]: `number` must be from 1 to 65535: `0`",
        ),
        (
            ("ports", "[{ number = -1, protocol = \"http\" }]"),
            "error[IM0105]: `number` must be from 1 to 65535: `-1`",
        ),
        (
            ("ports", "[{ number = 65536, protocol = \"http\" }]"),
            "error[IM0105]: `number` must be from 1 to 65535: `65536`",
        ),
        (
            ("ports", "[{ number = 80, protocol = \"grpc\" }]"),
            "error[IM0105]: there is no protocol of an egress `grpc`",
        ),
        (
            ("ports", "[{ number = 15003, protocol = \"tcp\" }]"),
            "error[IM0621]: port `15003` is reserved for the mesh",
        ),
        (("ip_addresses", "[]"), "error[IM0304]: `ip_addresses` is empty"),
        (
            ("ip_addresses", "[\"10.1.2.3\"]"),
            "error[IM0105]: `ip_addresses` has no prefix length: `10.1.2.3` (p.toml:8:17) / did you mean \
             `10.1.2.3/32`?",
        ),
        (
            ("ip_addresses", "[\"10.1.2.3/8\"]"),
            "error[IM0105]: `ip_addresses` has address bits after its prefix: `10.1.2.3/8` \
             (p.toml:8:17) / did you mean `10.0.0.0/8`?",
        ),
        (
            ("ip_addresses", "[\"10.0.0.0/33\"]"),
            "error[IM0105]: `ip_addresses` has an invalid prefix length",
        ),
        (
            ("ip_addresses", "[\"169.254.169.254/32\"]"),
            "error[IM0621]: `169.254.169.254/32` is link-local, where clouds have their metadata",
        ),
        (
            ("ip_addresses", "[\"127.0.0.0/8\"]"),
            "warning[IM0621]: `127.0.0.0/8` is each machine's own loopback",
        ),
        (("matches", "[]"), "error[IM0304]: `matches` is empty"),
        (
            ("matches", "[{ kind = \"HTTPRouteGroup\", name = \"none\" }]"),
            "error[IM0201]: there is no HTTP route group `none`",
        ),
        (("extra", "1"), "error[IM0102]: an egress has no key `extra`"),
    ] {
        let reported = finding(&text(&[keys]));
        assert!(reported.starts_with(expected), "{reported}");
    }
    let without = text(&[("hosts", ""), ("ports", "[{ number = 80, protocol = \"tcp\" }]")]);
    let reported = finding(&without);
    assert!(
        reported.starts_with("error[IM0103]: an egress needs `hosts` or `ip_addresses`"),
        "{reported}"
    );
    let reported = finding(&text(&[("hosts", ""), ("ip_addresses", "[\"10.0.0.0/8\"]")]));
    assert!(reported.starts_with("error[IM0105]: `http` selects requests by host"), "{reported}");
    let reported = finding(&text(&[
        ("ports", "[{ number = 443, protocol = \"https\" }]"),
        ("matches", "[{ kind = \"HTTPRouteGroup\", name = \"none\" }]"),
    ]));
    assert!(reported.starts_with("error[IM0105]: `matches` apply to HTTP requests"), "{reported}");
    let hosts: Vec<_> = (0..1001).map(|n| format!("\"a{n}.example\"")).collect();
    let reported = finding(&text(&[("hosts", &format!("[{}]", hosts.join(", ")))]));
    assert!(
        reported.starts_with("error[IM0113]: `hosts` of an egress has at most 1000 items"),
        "{reported}"
    );
}

#[test]
fn egress_host_of_a_mesh_or_external_service_is_rejected() {
    let own = "[[service]]\nname = \"api\"\nnamespace = \"shop\"\n";
    let reported = finding(&(text(&[("hosts", "[\"api.shop\"]")]) + own));
    let expected = "error[IM0202]: hostname `api.shop` already belongs to service `shop/api`";
    assert!(reported.starts_with(expected), "{reported}");
    let external = |port: u16| {
        format!(
            "[[service]]\nname = \"a\"\nexternal = true\nhostname = \"api.example.com\"\n\
             ports = [{{ port = {port}, protocol = \"http\" }}]\n"
        )
    };
    // Callers may omit the external service's port, so its host equals the egress host on port 80.
    for port in [80, 8080] {
        let reported = finding(&(text(&[]) + &external(port)));
        let expected =
            "error[IM0202]: `api.example.com` already belongs to the external service `default/a`";
        assert!(reported.starts_with(expected), "{reported}");
    }
    let https = [("ports", "[{ number = 443, protocol = \"https\" }]")];
    specification(&(text(&https) + &external(443)));
}

#[test]
fn namespace_egress_mode_overrides_the_default() {
    let says = |mode: &str| format!("[[namespace]]\nname = \"default\"\negress = \"{mode}\"\n");
    let reported = finding(&(text(&[]) + &says("passthrough")));
    assert!(reported.starts_with("warning[IM0622]: this egress has no effect"), "{reported}");
    let reported = finding(&(text(&[]) + &says("pass")));
    assert!(reported.starts_with("error[IM0105]: there is no mode of egress `pass`"), "{reported}");
    let known = specification(&(text(&[]) + &says("policy")));
    let default = Name::default_namespace();
    assert_eq!(known.egress_of(&default, EgressMode::Passthrough), EgressMode::Policy);
    let silent = specification(&text(&[]));
    assert_eq!(silent.egress_of(&default, EgressMode::Passthrough), EgressMode::Passthrough);
}
