//! `[[tcp_route]]`.

use ironmesh_catalog::{Mode, RouteRule, ServiceName};

use super::*;

/// A target with this rule, and a TCP route `ledger` with these keys besides its name.
fn with(rule: &str, route: &str) -> String {
    format!(
        "[[service]]\nname = \"store\"\nports = [{{ port = 3306, protocol = \"tcp\" }}]\n\
         [[service]]\nname = \"buyer\"\n\
         [[tcp_route]]\nname = \"ledger\"\n{route}\n\
         [[traffic_target]]\nname = \"t\"\ndestination = {{ name = \"store\" }}\n\
         sources = [{{ name = \"buyer\" }}]\nrules = [{{ {rule} }}]\n"
    )
}

const RULE: &str = "kind = \"TCPRoute\", name = \"ledger\"";

/// SMI 7.
#[test]
fn tcp_route_without_ports_covers_all_ports() {
    let route = |keys: &str| {
        let specification = specification(&with(RULE, keys));
        let target = specification.traffic_targets.values().next().unwrap();
        let route = "ledger".parse::<ServiceName>().unwrap().name;
        let [RouteRule::Tcp { route: named, .. }] = &target.rules[..] else { panic!() };
        assert_eq!(*named, route);
        Arc::clone(specification.tcp_routes.values().next().unwrap())
    };
    let all = route("");
    assert!(all.ports.is_none() && all.covers(80) && all.covers(3306));
    let one = route("matches = { ports = [3306] }");
    assert!(one.covers(3306) && !one.covers(80));
}

#[test]
fn invalid_tcp_route_ports_are_reported() {
    let reported = finding(&with(RULE, "matches = { ports = [] }"));
    assert!(reported.starts_with("error[IM0304]: `ports` is empty"), "{reported}");
    let reported = finding(&with(RULE, "matches = { ports = [0] }"));
    assert!(reported.starts_with("error[IM0105]: `ports` must be"), "{reported}");
    let reported = finding(&with(RULE, "ports = [3306]"));
    assert!(reported.starts_with("error[IM0102]: a TCP route has no key `ports`"), "{reported}");
    let reported = finding(&with(RULE, "matches = {}"));
    assert!(reported.starts_with("error[IM0103]"), "{reported}");
}

#[test]
fn tcp_rule_requires_an_existing_route_and_no_matches() {
    let reported = finding(&with("kind = \"TCPRoute\", name = \"ledgr\"", ""));
    assert!(reported.starts_with("error[IM0201]: there is no TCP route `ledgr`"), "{reported}");
    assert!(reported.ends_with("did you mean `ledger`?"), "{reported}");
    let reported = finding(&with(&format!("{RULE}, matches = [\"a\"]"), ""));
    assert!(
        reported.starts_with("error[IM0105]: a rule of kind `TCPRoute` has no `matches`"),
        "{reported}"
    );
}

#[test]
fn service_mode_is_read_and_invalid_mode_is_reported() {
    let mode = |text: &str| {
        let text = format!("[[service]]\nname = \"a\"\n{text}\n");
        specification(&text).services.values().next().unwrap().mode
    };
    assert_eq!(mode(""), None);
    assert_eq!(mode("mode = \"strict\""), Some(Mode::Strict));
    assert_eq!(mode("mode = \"permissive\""), Some(Mode::Permissive));
    assert_eq!(mode("mode = \"audit\""), Some(Mode::Audit));
    let reported = finding("[[service]]\nname = \"a\"\nmode = \"permisive\"\n");
    assert!(reported.starts_with("error[IM0105]: there is no mode `permisive`"), "{reported}");
    assert!(reported.ends_with("did you mean `permissive`?"), "{reported}");
}

#[test]
fn backend_with_another_port_protocol_is_a_warning() {
    let reported = finding(
        "[[service]]\nname = \"a\"\nports = [{ port = 80, protocol = \"http\" }]\n\
         [[service]]\nname = \"b\"\nports = [{ port = 80, protocol = \"tcp\" }]\n\
         [[traffic_split]]\nname = \"s\"\nservice = \"a\"\n\
         backends = [{ service = \"a\", weight = 1 }, { service = \"b\", weight = 1 }]\n",
    );
    assert!(
        reported.starts_with("warning[IM0303]: port `80` is `http` in service `a`"),
        "{reported}"
    );
}

#[test]
fn rule_without_matching_port_is_a_warning() {
    let reported = finding(&with(RULE, "matches = { ports = [3307] }"));
    assert!(
        reported.starts_with("warning[IM0305]: this rule allows nothing: no service of `default/store` has the TCP port `3307`"),
        "{reported}"
    );
    let group = "[[http_route_group]]\nname = \"all\"\nmatches = [{ name = \"all\" }]\n";
    let rule = "kind = \"HTTPRouteGroup\", name = \"all\"";
    let reported = finding(&(with(rule, "") + group));
    assert!(reported.contains("no service of `default/store` has an HTTP port"), "{reported}");
    // A target with TCP rules only also covers HTTP ports.
    let http = with(RULE, "matches = { ports = [3306] }").replace("\"tcp\"", "\"http\"");
    assert_eq!(findings(&http), [""; 0]);
    // A service with an error may have the port.
    let broken = with(RULE, "matches = { ports = [3307] }") + "[[service]]\nname = \"Bad\"\n";
    assert!(finding(&broken).starts_with("error[IM0106]"));
}
