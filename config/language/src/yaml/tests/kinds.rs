//! What each kind comes to mean, in each of its versions.

use super::*;

/// What `resources` mean beside two services.
fn with_services(resources: &str) -> MeshSpecification {
    meaning(&specification(&format!("{SERVICES}{resources}")))
}

#[test]
fn all_traffic_target_versions_have_equal_meaning() {
    let expected = with_services(&format!("{TARGET}{GROUP}"));
    assert_eq!(expected.traffic_targets.len(), 1);
    for version in ["v1alpha2", "v1alpha3", "v1alpha4"] {
        let target = TARGET.replace("v1alpha3", version);
        assert_eq!(with_services(&format!("{target}{GROUP}")), expected, "{version}");
    }
    // The first has no `spec`, and calls rules specs.
    let (head, spec) = TARGET.split_once("spec:\n").unwrap();
    let first = format!("{head}{}", spec.replace("\n  ", "\n").replace("rules:", "specs:"));
    let first = first.replace("  destination", "destination").replace("v1alpha3", "v1alpha1");
    assert_eq!(with_services(&format!("{first}{GROUP}")), expected);
}

#[test]
fn all_http_route_group_versions_have_equal_meaning() {
    let expected = with_services(&format!("{TARGET}{GROUP}"));
    let map = "headers:\n      user-agent: .*Firefox.*\n      x-team: \"[a-z]+\"\n";
    let list = GROUP.find("headers:").unwrap();
    for version in ["v1alpha3", "v1alpha4"] {
        let group = GROUP.replace("v1alpha4", version);
        assert_eq!(with_services(&format!("{TARGET}{group}")), expected, "{version}");
    }
    for headers in [map.to_owned(), map.replace("headers", "httpHeaders")] {
        let group = format!("{}{headers}", &GROUP[..list]);
        assert_eq!(with_services(&format!("{TARGET}{group}")), expected);
    }
    // Both at once are ambiguous: without one of the headers, the rule would grant more.
    let group = format!("{}{map}      httpHeaders:\n        x-more: a\n", &GROUP[..list]);
    let group = group.replace("      httpHeaders", "    httpHeaders");
    let reported = findings(&group);
    assert!(reported[0].starts_with("error[IM0105]: a match has `httpHeaders` or"), "{reported:?}");
    for version in ["v1alpha1", "v1alpha2"] {
        let group = GROUP.replace("v1alpha4", version).replace("spec:\n  matches", "  matches");
        let group = group.replace("\n  ", "\n").replace("\nname: routes", "\n  name: routes");
        assert_eq!(with_services(&format!("{TARGET}{group}")), expected, "{group}");
    }
}

#[test]
fn tcp_route_without_ports_covers_all_ports() {
    let target =
        TARGET.replace("HTTPRouteGroup", "TCPRoute").replace("    matches:\n    - buy\n", "");
    let ports = |version: &str, rest: &str| {
        let route = resource(&format!("specs.smi-spec.io/{version}"), "TCPRoute", "routes", rest);
        let specification = with_services(&format!("{target}{route}"));
        specification.tcp_routes.values().next().unwrap().ports.clone()
    };
    let some = "spec:\n  matches:\n    ports: [80, 0x51]\n";
    assert_eq!(ports("v1alpha4", some), Some(vec![80, 81]));
    assert_eq!(ports("v1alpha3", some), Some(vec![80, 81]));
    for (version, rest) in [
        ("v1alpha1", ""),
        ("v1alpha2", ""),
        ("v1alpha3", "spec: {}\n"),
        ("v1alpha4", "spec:\n  matches: {}\n"),
    ] {
        assert_eq!(ports(version, rest), None, "{version}: {rest}");
    }
}

#[test]
fn empty_port_list_never_means_all_ports() {
    let rest = "spec:\n  matches:\n    ports: []\n";
    let route = resource("specs.smi-spec.io/v1alpha4", "TCPRoute", "routes", rest);
    let expected =
        "error[IM0304]: `ports` is empty (p.yaml:8:12) / leave `ports` out to mean all ports";
    assert_eq!(finding(&route), expected);
}

#[test]
fn split_weights_are_integers_or_quantities() {
    let split = |version: &str, one: &str, other: &str| {
        let rest = format!(
            "spec:\n  service: store\n  backends:\n  - service: store\n    weight: {one}\n  \
             - service: store-v2\n    weight: {other}\n"
        );
        let split =
            resource(&format!("split.smi-spec.io/{version}"), "TrafficSplit", "split", &rest);
        let second = resource(
            "v1",
            "Service",
            "store-v2",
            "spec:\n  ports:\n  - name: http-web\n    port: 80\n",
        );
        let specification = with_services(&format!("{second}{split}"));
        let split = specification.traffic_splits.values().next().unwrap().clone();
        split.backends.iter().map(|backend| backend.weight).collect::<Vec<_>>()
    };
    for version in ["v1alpha1", "v1alpha2", "v1alpha3", "v1alpha4"] {
        assert_eq!(split(version, "90", "10"), [90, 10]);
    }
    assert_eq!(split("v1alpha1", "900m", "100m"), [900, 100]);
    assert_eq!(split("v1alpha1", "1", "500m"), [1000, 500]);
    assert_eq!(split("v1alpha1", "1.5", "0m"), [1500, 0]);
}

#[test]
fn quantity_weight_is_valid_only_in_v1alpha1() {
    let rest = "spec:\n  service: store\n  backends:\n  - service: store\n    weight: 500m\n";
    let reported = |version: &str, rest: &str| {
        let split =
            resource(&format!("split.smi-spec.io/{version}"), "TrafficSplit", "split", rest);
        finding(&format!("{SERVICES}{split}"))
    };
    let expected = "error[IM0104]: `weight` must be an integer, not a string (p.yaml:24:13)";
    assert_eq!(reported("v1alpha2", rest), expected);
    assert_eq!(reported("v1alpha1", &rest.replace("500m", "5x")), expected);
    assert!(
        reported("v1alpha1", &rest.replace("500m", "5000000000000m")).starts_with("error[IM0301]")
    );
}

#[test]
fn kubernetes_hostname_resolves_to_the_service_name() {
    let split = |service: &str| {
        let rest = format!(
            "spec:\n  service: {service}\n  backends:\n  - service: store\n    weight: 1\n"
        );
        format!(
            "{SERVICES}{}",
            resource("split.smi-spec.io/v1alpha2", "TrafficSplit", "split", &rest)
        )
    };
    for hostname in
        ["store", "store.default", "store.default.svc", "store.default.svc.cluster.local"]
    {
        assert_eq!(specification(&split(hostname)).traffic_splits.len(), 1, "{hostname}");
    }
    for other in ["store.shop", "store.example.com"] {
        assert!(finding(&split(other)).starts_with("error[IM0106]"), "{other}");
    }
}

#[test]
fn destination_port_is_rejected_as_unsupported() {
    let port = TARGET.replacen("name: store\n", "name: store\n    port: 8080\n", 1);
    let reported = finding(&format!("{SERVICES}{}{GROUP}", port.replace("v1alpha3", "v1alpha2")));
    assert!(
        reported.starts_with(
            "error[IM0108]: `port` of a destination is not served, and without it more would be allowed (p.yaml:25:11)"
        ),
        "{reported}"
    );
}

#[test]
fn udp_rule_is_rejected_as_unsupported() {
    let rule = "  - kind: UDPRoute\n    name: udp\n";
    let reported = finding(&format!("{SERVICES}{TARGET}{rule}{GROUP}"));
    assert!(
        reported.starts_with(
            "error[IM0108]: rules of kind `UDPRoute` are not served: `udp` (p.yaml:35:5)"
        ),
        "{reported}"
    );
}

#[test]
fn identity_binding_by_expressions_is_rejected() {
    let rest = "spec:\n  schemes:\n    podLabelSelector:\n      matchLabels: { app: a }\n      \
                matchExpressions: [{ key: x, operator: Exists }]\n";
    let reported = finding(&resource("access.smi-spec.io/v1alpha4", "IdentityBinding", "a", rest));
    assert!(
        reported.starts_with("error[IM0108]: `matchExpressions` are not served (p.yaml:10:25)"),
        "{reported}"
    );
}

/// A service with these ports.
fn service(ports: &str) -> String {
    resource(
        "v1",
        "Service",
        "web",
        &format!("spec:\n  type: NodePort\n  selector: {{ app: web }}\n  ports:\n{ports}"),
    )
}

/// Pods that the service above selects.
fn workload(kind: &str, account: &str) -> String {
    let spec = format!(
        "spec:\n      {account}\n      containers:\n      - name: web\n        ports:\n        \
         - {{ name: main, containerPort: 8080 }}\n"
    );
    let template = format!(
        "spec:\n  template:\n    metadata:\n      labels: {{ app: web, version: v1 }}\n    {spec}"
    );
    resource(kind.split_once(' ').unwrap().0, kind.split_once(' ').unwrap().1, "web", &template)
}

#[test]
fn port_protocol_is_detected_as_in_open_service_mesh() {
    use ironmesh_catalog::Protocol::{Grpc, Http, Http2, Tcp};
    for (port, expected) in [
        ("name: a", Http),
        ("name: tcp", Http),
        ("name: http-a", Http),
        ("name: grpc-a", Grpc),
        ("name: tcp-a", Tcp),
        ("name: tcp-server-first-a", Tcp),
        ("name: tcp-a, appProtocol: http", Http),
        ("name: a, appProtocol: TCP", Tcp),
        ("name: a, appProtocol: tcp-server-first", Tcp),
        ("name: a, appProtocol: kubernetes.io/h2c", Http2),
        ("name: a, appProtocol: grpc, protocol: TCP", Grpc),
    ] {
        let specification = specification(&service(&format!("  - {{ port: 80, {port} }}\n")));
        let service = specification.services.values().next().unwrap();
        assert_eq!(service.ports[0].protocol, expected, "{port}");
    }
    for (port, expected) in [
        (
            "protocol: UDP",
            "error[IM0108]: only ports of protocol TCP are served: port `80` (p.yaml:10:27)",
        ),
        (
            "appProtocol: https",
            "error[IM0108]: `appProtocol` `https` is not served: port `80` (p.yaml:10:30)",
        ),
        (
            "targetPort: web",
            "error[IM0105]: `targetPort` `web` is the name of a port of pods (p.yaml:10:29)",
        ),
        ("nodePort: 30080, port: 1", "error[IM0111]: key `port` is given twice (p.yaml:10:34)"),
    ] {
        let reported = finding(&service(&format!("  - {{ port: 80, {port} }}\n")));
        assert!(reported.starts_with(expected), "{reported}");
    }
    let external =
        resource("v1", "Service", "a", "spec:\n  type: ExternalName\n  externalName: x.y\n");
    assert!(finding(&external).starts_with("error[IM0108]: services of type `ExternalName`"));
}

#[test]
fn workloads_determine_service_account_and_target_ports() {
    let read = |workloads: &str| {
        let text = format!("{}{workloads}", service("  - { port: 80, targetPort: main }\n"));
        let specification = specification(&text);
        let service = specification.services.values().next().unwrap().clone();
        (service.account.name.to_string(), service.ports[0].target)
    };
    for kind in ["apps/v1 Deployment", "apps/v1 StatefulSet", "apps/v1 DaemonSet", "batch/v1 Job"] {
        assert_eq!(read(&workload(kind, "serviceAccountName: shop")), ("shop".to_owned(), 8080));
    }
    // Kubernetes runs a pod that names none as `default`.
    assert_eq!(read(&workload("apps/v1 Deployment", "dnsPolicy: Default")).0, "default");
    let pod = "metadata:\n  name: web\n  labels: { app: web }\nspec:\n  serviceAccountName: shop\n  containers: \
               [{ ports: [{ name: main, containerPort: 80 }] }]\n";
    assert_eq!(read(&format!("---\napiVersion: v1\nkind: Pod\n{pod}")), ("shop".to_owned(), 80));
    let two = workload("apps/v1 Deployment", "serviceAccountName: shop")
        + &workload("apps/v1 Deployment", "serviceAccountName: store");
    let reported = finding(&format!("{}{two}", service("  - port: 80\n")));
    assert!(
        reported.starts_with(
            "warning[IM0105]: the pods behind the service run as `shop` and as `store` (p.yaml:3:1)"
        ),
        "{reported}"
    );
    // Pods of another namespace are others, and a service without a selector has none.
    let other = workload("apps/v1 Deployment", "serviceAccountName: shop")
        .replace("name: web\nspec", "name: web\n  namespace: b\nspec");
    let apart = format!("{}{other}", service("  - port: 80\n"));
    assert_eq!(
        specification(&apart).services.values().next().unwrap().account.name.to_string(),
        "web"
    );
}

#[test]
fn osm_retry_is_converted() {
    let retry = resource(
        "policy.openservicemesh.io/v1alpha1",
        "Retry",
        "buyer",
        "spec:\n  source: { kind: ServiceAccount, name: buyer, namespace: default }\n  \
         destinations:\n  - { kind: Service, name: store, namespace: default }\n  \
         retryPolicy:\n    retryOn: \"5xx, reset\"\n    perTryTimeout: 1s\n    numRetries: 5\n    \
         retryBackoffBaseInterval: 1s\n",
    );
    let specification = specification(&format!("{SERVICES}{retry}"));
    let retry = specification.retries.values().next().unwrap();
    assert_eq!(retry.source.to_string(), "default/buyer");
    assert_eq!(retry.destinations[0].service.to_string(), "default/store");
    assert_eq!((retry.retries.on().as_str(), retry.retries.count), ("5xx,reset", 5));
    assert_eq!(retry.retries.base_interval, Some(std::time::Duration::from_secs(1)));
    // The table contains its invalid values.
    let wrong = resource(
        "policy.openservicemesh.io/v1alpha1",
        "Retry",
        "buyer",
        "spec:\n  source: { name: buyer }\n  destinations: [{ name: store }]\n  \
         retryPolicy: { numRetries: 3 }\n",
    );
    let reported = finding(&format!("{SERVICES}{wrong}"));
    assert!(reported.starts_with("error[IM0103]: a retry policy needs `retryOn`"), "{reported}");
}

#[test]
fn osm_egress_is_converted() {
    let egress = |spec: &str| {
        let spec = format!("spec:\n{spec}");
        resource("policy.openservicemesh.io/v1alpha1", "Egress", "out", &spec)
    };
    let sources = "  sources:\n  - { kind: ServiceAccount, name: buyer, namespace: default }\n";
    let text = egress(&format!(
        "{sources}  hosts: [api.example.com]\n  ipAddresses: []\n  ports:\n  \
         - {{ number: 80, protocol: http }}\n  - {{ number: 443, protocol: https }}\n  \
         matches:\n  - {{ apiGroup: specs.smi-spec.io/v1alpha4, kind: HTTPRouteGroup, name: routes }}\n"
    ));
    let reported = specification(&format!("{SERVICES}{GROUP}{text}"));
    let egress_of_policy = reported.egresses.values().next().unwrap();
    assert_eq!(egress_of_policy.sources[0].to_string(), "default/buyer");
    assert_eq!(egress_of_policy.hosts[0].as_str(), "api.example.com");
    assert!(egress_of_policy.ip_addresses.is_empty());
    assert_eq!(egress_of_policy.matches[0].group.as_str(), "routes");
    let ports: Vec<_> = egress_of_policy.ports.iter().map(|port| port.number).collect();
    assert_eq!(ports, [80, 443]);
    // Which side speaks first has no effect; an egress without addresses does not mean all addresses.
    let first = |more: &str| {
        let ports = "  ports:\n  - { number: 3306, protocol: tcp-server-first }\n";
        format!("{SERVICES}{}", egress(&format!("{sources}{more}{ports}")))
    };
    let by_address = specification(&first("  ipAddresses: [10.0.0.0/8]\n"));
    let port = by_address.egresses.values().next().unwrap().ports[0];
    assert_eq!(port.protocol, ironmesh_catalog::EgressProtocol::Tcp);
    let reported = finding(&first(""));
    assert!(
        reported.starts_with("error[IM0103]: an egress needs `hosts` or `ip_addresses`"),
        "{reported}"
    );
    let settings = "  matches:\n  - { apiGroup: policy.openservicemesh.io/v1alpha1, \
                    kind: UpstreamTrafficSetting, name: x }\n  hosts: [a.example]\n  ports:\n  \
                    - { number: 80, protocol: http }\n";
    let reported = finding(&format!("{SERVICES}{}", egress(&format!("{sources}{settings}"))));
    assert!(
        reported.starts_with("error[IM0108]: matches of `policy.openservicemesh.io"),
        "{reported}"
    );
}

/// A Telemetry of the pods that `selector` selects.
fn telemetry(selector: &str) -> String {
    resource(
        "policy.openservicemesh.io/v1alpha1",
        "Telemetry",
        "log",
        &format!("spec:\n  selector: {selector}\n  accessLog: {{ format: \"%DURATION%\" }}\n"),
    )
}

#[test]
fn unsupported_telemetry_selector_is_rejected() {
    let web = service("  - port: 80\n") + &workload("apps/v1 Deployment", "dnsPolicy: Default");
    let of = |selector: &str| web.clone() + &telemetry(selector);
    for (selector, expected) in [
        ("{ matchLabels: { app: web } }", "error[IM0104]: `matchLabels` must be a string"),
        ("{ version: 2 }", "error[IM0104]: `version` must be a string"),
        // Without its other label, it would be that of the service.
        ("{ app: web, version: 1 }", "error[IM0104]: `version` must be a string"),
        ("web", "error[IM0104]: `selector` must be a table"),
    ] {
        let reported = finding(&of(selector));
        assert!(reported.starts_with(expected), "{selector}: {reported}");
    }
    for (selector, expected) in
        [("{ app: web }", "service `default/web`"), ("{}", "namespace `default`")]
    {
        let specification = specification(&of(selector));
        let telemetry = specification.telemetries.values().next().unwrap();
        assert_eq!(telemetry.level.to_string(), expected);
    }
}

#[test]
fn telemetry_selector_beyond_the_service_is_rejected() {
    let web = service("  - port: 80\n") + &workload("apps/v1 Deployment", "dnsPolicy: Default");
    let of_both = web + &telemetry("{ version: v1 }");
    let specification = specification(&of_both);
    let telemetry = specification.telemetries.values().next().unwrap();
    assert_eq!(telemetry.level.to_string(), "service `default/web`");
    for name in ["worker", "web"] {
        let worker = workload("apps/v1 StatefulSet", "dnsPolicy: Default")
            .replace("app: web", "app: worker")
            .replace("metadata:\n  name: web", &format!("metadata:\n  name: {name}"));
        let reported = finding(&(worker + &of_both));
        assert!(
            reported.starts_with("error[IM0108]: a selector of labels is not served"),
            "{reported}"
        );
        let expected =
            format!("it selects the pods of `{name}` as well, which are not behind `web`");
        assert!(reported.contains(&expected), "{reported}");
    }
}
