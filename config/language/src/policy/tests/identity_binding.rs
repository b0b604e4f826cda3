//! `[[identity_binding]]`.

use ironmesh_catalog::{Labels, Provider, Subject};

use super::*;

/// Policy with an identity binding that has these keys. A target has it as destination and source.
fn with(keys: &str) -> String {
    format!(
        "[[identity_binding]]\nname = \"batch\"\n{keys}\n\
         [[service]]\nname = \"store\"\nports = [{{ port = 80, protocol = \"http\" }}]\n\
         [[http_route_group]]\nname = \"all\"\nmatches = [{{ name = \"all\" }}]\n\
         [[traffic_target]]\nname = \"t\"\n\
         destination = {{ kind = \"IdentityBinding\", name = \"batch\" }}\n\
         sources = [{{ kind = \"IdentityBinding\", name = \"batch\" }}]\n\
         rules = [{{ kind = \"HTTPRouteGroup\", name = \"all\" }}]\n"
    )
}

/// SMI 9.
#[test]
fn each_identity_scheme_is_read_and_usable_in_targets() {
    let one = specification(&with("service_account = \"store\""));
    let target = one.traffic_targets.values().next().unwrap();
    let subject = Subject::Binding("default".parse().unwrap(), "batch".parse().unwrap());
    assert_eq!((&target.destination, &target.sources), (&subject, &vec![subject.clone()]));
    let binding = one.identity_bindings.values().next().unwrap();
    assert_eq!(binding.account, Some("store".parse().unwrap()));

    let two = specification(&with(
        "spiffe_identities = [\"mesh.internal/ns/default/sa/store\", \"spiffe://other/x\"]",
    ));
    let binding = two.identity_bindings.values().next().unwrap();
    let ids: Vec<_> = binding.identities.iter().map(|one| one.id.as_str()).collect();
    assert_eq!(ids, ["spiffe://mesh.internal/ns/default/sa/store", "spiffe://other/x"]);

    let three = specification(&with("endpoint_labels = { role = \"batch\" }"));
    let binding = three.identity_bindings.values().next().unwrap();
    assert_eq!(binding.endpoint_labels, Some([("role", "batch")].into_iter().collect::<Labels>()));
    assert!(binding.trusted_providers.is_empty());
    let labels = "endpoint_labels = { role = \"batch\" }\n";
    let trusting = specification(&with(&format!("{labels}trusted_providers = [\"azure\"]")));
    let binding = trusting.identity_bindings.values().next().unwrap();
    assert_eq!(binding.trusted_providers, [Provider::Azure].into());
}

#[test]
fn empty_or_ambiguous_identity_binding_is_rejected() {
    for (keys, reported) in [
        ("", "error[IM0103]: an identity binding needs `service_account` or"),
        ("spiffe_identities = []", "error[IM0304]: `spiffe_identities` is empty"),
        ("endpoint_labels = {}", "error[IM0304]: `endpoint_labels` is empty"),
        (
            "service_account = \"store\"\nendpoint_labels = { a = \"b\" }",
            "error[IM0105]: an identity binding has `service_account` or `endpoint_labels`, not both",
        ),
        ("service_account = \"stor\"", "error[IM0201]: no service runs as `stor`"),
        ("endpoint_labels = { a = 1 }", "error[IM0104]: `a` must be a string"),
        (
            "service_account = \"store\"\ntrusted_providers = [\"consul\"]",
            "error[IM0105]: `trusted_providers` needs `endpoint_labels`",
        ),
        ("endpoint_labels = { a = \"b\" }\ntrusted_providers = [\"static\"]", "error[IM0105]: "),
        (
            "spiffe_identities = [\"a/b\", \"spiffe://a/b\"]",
            "error[IM0202]: identity `spiffe://a/b`",
        ),
    ] {
        let finding = finding(&with(keys));
        assert!(finding.starts_with(reported), "{finding}");
    }
    for id in ["a", "a/", "a//b", "A/b", "a/../b", "a/b c", "https://a/b", "a:80/b", "a/%41", "ä/b"]
    {
        let finding = finding(&with(&format!("spiffe_identities = [\"{id}\"]")));
        assert!(finding.starts_with("error[IM0105]: a SPIFFE ID "), "{id}: {finding}");
    }
}

#[test]
fn missing_identity_binding_is_reported_with_a_suggestion() {
    let text = with("service_account = \"store\"").replace(
        "sources = [{ kind = \"IdentityBinding\", name = \"batch\"",
        "sources = [{ kind = \"IdentityBinding\", name = \"bach\"",
    );
    let reported = finding(&text);
    assert!(
        reported.starts_with("error[IM0201]: there is no identity binding `bach`"),
        "{reported}"
    );
    assert!(reported.ends_with("did you mean `batch`?"), "{reported}");
}

#[test]
fn rule_without_matching_port_of_a_binding_is_a_warning() {
    let text = with("service_account = \"store\"").replace("\"http\"", "\"tcp\"");
    let reported = finding(&text);
    assert!(reported.starts_with("warning[IM0305]"), "{reported}");
    assert!(reported.contains("no service of `default/batch` has an HTTP port"), "{reported}");
}
