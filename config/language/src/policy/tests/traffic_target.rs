//! `[[traffic_target]]`.

use ironmesh_catalog::{RouteRule, ServiceName, Subject};

use super::*;

/// Policy with a target in which `rest` replaces the default keys, and with all objects that it
/// refers to.
fn with(rest: &[(&str, &str)]) -> String {
    let mut keys = vec![
        ("destination", "{ name = \"store\" }"),
        ("sources", "[{ name = \"buyer\" }]"),
        ("rules", "[{ kind = \"HTTPRouteGroup\", name = \"books\" }]"),
    ];
    keys.retain(|(key, _)| rest.iter().all(|(other, _)| other != key));
    keys.extend(rest);
    let keys: Vec<String> = keys.iter().map(|(key, value)| format!("{key} = {value}\n")).collect();
    let others = "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n\
                  [[service]]\nname = \"buyer\"\n\
                  [[http_route_group]]\nname = \"books\"\nmatches = [{ name = \"buy\" }]\n";
    format!("[[traffic_target]]\nname = \"t\"\n{}{others}", keys.concat())
}

/// SMI 4.
#[test]
fn omitted_matches_mean_all_and_repeats_are_dropped() {
    let specification = specification(&with(&[(
        "sources",
        "[{ name = \"buyer\" }, { kind = \"ServiceAccount\", name = \"buyer\", namespace = \"default\" }]",
    )]));
    let target = specification.traffic_targets.values().next().unwrap();
    assert_eq!(target.sources.len(), 1);
    let group = "books".parse::<ServiceName>().unwrap().name;
    let [RouteRule::Http { group: named, matches, .. }] = &target.rules[..] else { panic!() };
    assert_eq!((named, matches), (&group, &None));
    assert_eq!(target.destination, Subject::Account("store".parse().unwrap()));
}

/// SMI 2.
#[test]
fn empty_list_is_rejected_and_never_means_anyone() {
    for (key, value) in [
        ("sources", "[]"),
        ("rules", "[]"),
        ("rules", "[{ kind = \"HTTPRouteGroup\", name = \"books\", matches = [] }]"),
    ] {
        let reported = finding(&with(&[(key, value)]));
        assert!(reported.starts_with("error[IM0304]"), "{reported}");
    }
    let reported = finding(&with(&[("sources", "[]")]));
    assert!(
        reported.ends_with("an empty list never means anyone: name who may call"),
        "{reported}"
    );
}

/// SMI 8.
#[test]
fn unsupported_source_or_rule_kind_is_rejected() {
    let reported = finding(&with(&[("sources", "[{ kind = \"Group\", name = \"buyer\" }]")]));
    assert!(
        reported.starts_with("error[IM0105]: there is no kind of subject `Group`"),
        "{reported}"
    );
    assert!(
        reported.ends_with("it is one of `ServiceAccount` and `IdentityBinding`"),
        "{reported}"
    );
    let reported = finding(&with(&[("rules", "[{ kind = \"UDPRoute\", name = \"x\" }]")]));
    assert!(
        reported.starts_with("error[IM0108]: rules of kind `UDPRoute` are not served"),
        "{reported}"
    );
    let reported = finding(&with(&[("rules", "[{ kind = \"TcpRoute\", name = \"x\" }]")]));
    assert!(reported.ends_with("did you mean `TCPRoute`?"), "{reported}");
    let reported = finding(&with(&[("rules", "[{ name = \"books\" }]")]));
    assert!(reported.starts_with("error[IM0103]: a rule needs `kind`"), "{reported}");
}

/// SMI 3, OSM 4.
#[test]
fn target_must_be_in_the_namespace_of_its_destination() {
    let text = with(&[("destination", "{ name = \"store\", namespace = \"shop\" }")])
        + "[[service]]\nname = \"store\"\nnamespace = \"shop\"\n";
    let reported = finding(&text);
    assert!(
        reported.starts_with("error[IM0105]: a traffic target in namespace `default`"),
        "{reported}"
    );
    assert!(reported.ends_with("give the target itself `namespace = \"shop\"`"), "{reported}");
}

#[test]
fn all_errors_of_one_target_are_reported_together() {
    let all = findings(
        "[[traffic_target]]\nnane = \"t\"\nnamespace = \"No\"\ndestination = 1\nsources = []\n\
         rules = [{ kind = \"x\", name = \"y\", colour = 1 }]\n",
    );
    let codes: Vec<&str> = all.iter().filter_map(|line| line.get(6..12)).collect();
    assert_eq!(codes, ["IM0103", "IM0102", "IM0106", "IM0104", "IM0304", "IM0105", "IM0102"]);
}
