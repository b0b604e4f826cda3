//! Which resources are policy, and the findings of the others.

use super::*;

#[test]
fn lists_and_multi_document_files_are_split() {
    let items = |text: &str| {
        text.replace("---\n", "- ").replace('\n', "\n  ").replace("\n  - api", "\n- api")
    };
    let list = format!("apiVersion: v1\nkind: List\nitems:\n{}", items(SERVICES).trim_end());
    let specification = specification(&format!("{list}\n{TARGET}{GROUP}"));
    assert_eq!(specification.services.len(), 2);
    assert_eq!(specification.traffic_targets.len(), 1);
}

#[test]
fn kubernetes_metadata_and_status_are_ignored() {
    let metadata = "metadata:\n  labels: { app: store }\n  annotations:\n    a/b: 'c'\n  uid: 1-2\n  \
                    creationTimestamp: null\n  managedFields: [{ manager: kubectl }]\n";
    let text = format!("{SERVICES}{TARGET}{GROUP}").replace("metadata:\n", metadata);
    let status = "status:\n  phase: null\n";
    assert_eq!(specification(&format!("{text}{status}")).services.len(), 2);
}

#[test]
fn resource_requires_api_version_kind_and_name() {
    for (text, expected) in [
        (
            "kind: Service\nmetadata: { name: a }\n",
            "error[IM0103]: a resource needs `apiVersion` (p.yaml:1:1)",
        ),
        (
            "apiVersion: v1\nmetadata: { name: a }\n",
            "error[IM0103]: a resource needs `kind` (p.yaml:1:1)",
        ),
        (
            "apiVersion: v1\nkind: Service\n",
            "error[IM0103]: a Service needs `metadata` (p.yaml:2:1)",
        ),
        (
            "apiVersion: v1\nkind: Service\nmetadata: { namespace: a }\n",
            "error[IM0103]: `metadata` needs `name` (p.yaml:3:11)",
        ),
        (
            "apiVersion: v1\nkind: [Service]\n",
            "error[IM0104]: `kind` must be a string, not an array (p.yaml:2:7)",
        ),
        ("- a\n", "error[IM0112]: a YAML document must be a resource (p.yaml:1:1)"),
        (
            "services:\n  web:\n    image: x\n",
            "error[IM0112]: this is no resource: it has neither `apiVersion` nor `kind` (p.yaml:1:1)",
        ),
    ] {
        let reported = findings(text);
        assert!(reported[0].starts_with(expected), "{text}: {reported:#?}");
    }
}

#[test]
fn unknown_kind_or_version_is_reported_with_a_suggestion() {
    let of =
        |api_version: &str, kind: &str| finding(&resource(api_version, kind, "a", "spec: {}\n"));
    for (reported, expected) in [
        (
            of("access.smi-spec.io/v1alpha5", "TrafficTarget"),
            "error[IM0112]: there is no version `v1alpha5` of TrafficTarget (p.yaml:2:13) / the versions of \
             `access.smi-spec.io` are `v1alpha1`, `v1alpha2`, `v1alpha3` and `v1alpha4`",
        ),
        (
            of("access.smi-spec.io/v1alpha3", "TraficTarget"),
            "error[IM0112]: there is no kind `TraficTarget` of `access.smi-spec.io/v1alpha3` in policy \
             (p.yaml:3:1) / did you mean `TrafficTarget`?",
        ),
        (
            of("access.smi-spec.io/v1alpha3", "HTTPRouteGroup"),
            "error[IM0112]: there is no kind `HTTPRouteGroup` of `access.smi-spec.io/v1alpha3` in policy \
             (p.yaml:3:1) / did you mean `apiVersion: specs.smi-spec.io/v1alpha4`?",
        ),
        (
            of("networking.k8s.io/v1", "NetworkPolicy"),
            "error[IM0112]: there is no kind `NetworkPolicy` of `networking.k8s.io/v1` in policy \
             (p.yaml:3:1) / the kinds are `TrafficTarget`, `IdentityBinding`, `HTTPRouteGroup`, `TCPRoute`, \
             `UDPRoute`, `TrafficSplit`, `Service`, `Retry`, `UpstreamTrafficSetting`, `Egress`, \
             `IngressBackend` and `Telemetry`",
        ),
        (
            of("config.openservicemesh.io/v1alpha2", "MeshConfig"),
            "error[IM0108]: MeshConfig of Open Service Mesh is not served by this version: the mesh ignores all its settings (p.yaml:3:1) / remove it from the policy",
        ),
        (
            of("specs.smi-spec.io/v1alpha4", "UDPRoute"),
            "error[IM0108]: UDPRoute is not served (p.yaml:3:1) / the mesh carries HTTP and TCP: UDP has no handshake in which to verify a caller",
        ),
        (
            of("v1", "Servce"),
            "error[IM0112]: there is no kind `Servce` of `v1` in policy (p.yaml:3:1) / did you mean \
             `Service`?",
        ),
        (
            of("v1", "ServiceAccount"),
            "warning[IM0112]: ServiceAccount is not policy: Ironmesh ignores it (p.yaml:3:1) / remove it from \
             the policy folder",
        ),
    ] {
        assert_eq!(reported, expected);
    }
}

#[test]
fn unknown_field_is_reported_with_its_yaml_name() {
    for (from, to, expected) in [
        (
            "pathRegex:",
            "pathRegx:",
            "error[IM0102]: a match has no key `pathRegx` (p.yaml:43:5) / did you mean `pathRegex`?",
        ),
        (
            "  sources:",
            "  source:",
            "error[IM0102]: a TrafficTarget has no key `source` (p.yaml:26:3) / did you mean `sources`?",
        ),
        (
            "matches:\n    - buy",
            "matchs:\n    - buy",
            "error[IM0102]: a rule has no key `matchs` (p.yaml:33:5) / did you mean `matches`?",
        ),
        (
            "pathRegex: /books",
            "pathRegex: 80",
            "error[IM0104]: `pathRegex` must be a string, not an integer (p.yaml:43:16)",
        ),
        (
            "kind: TrafficTarget\n",
            "kind: TrafficTarget\nspce: 1\n",
            "error[IM0102]: a TrafficTarget has no key `spce`",
        ),
    ] {
        let text = format!("{SERVICES}{TARGET}{GROUP}");
        assert!(text.contains(from), "{from}");
        let reported = findings(&text.replace(from, to));
        assert!(
            reported.iter().any(|line| line.starts_with(expected)),
            "{expected}\n{reported:#?}"
        );
    }
}

#[test]
fn key_without_value_never_means_all() {
    let all = "matches:\n    # - buy\n";
    let text = format!("{SERVICES}{}{GROUP}", TARGET.replace("matches:\n    - buy\n", all));
    assert_eq!(
        finding(&text),
        "error[IM0105]: `matches` has no value (p.yaml:33:5) / give it a value, or remove it: an empty value never means all"
    );
    let text =
        format!("{SERVICES}{}{GROUP}", TARGET.replace("matches:\n    - buy\n", "matches: []\n"));
    assert!(finding(&text).starts_with("error[IM0304]: `matches` is empty (p.yaml:33:14)"));
}
