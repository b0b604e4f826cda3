//! Hosts of requests, and rules that match hosts.

use super::*;

/// The mesh in which `buyer` may call `v1` by this host only.
fn mesh_by_host(host: &str) -> Snapshot {
    let mut mesh = mesh();
    let group = HttpRouteGroup {
        namespace: name("shop"),
        name: name("books"),
        matches: vec![HttpMatch {
            name: name("read"),
            path: None,
            methods: Vec::new(),
            headers: [("host".into(), host.into())].into(),
            spot: spot(),
        }],
        spot: spot(),
    };
    mesh.http_route_groups.insert(key("books"), Arc::new(group));
    snapshot(mesh)
}

fn ask_host(snapshot: &Snapshot, to: &str, host: Option<&str>) -> Result<Verdict, QuestionError> {
    let headers = host.map(|host| ("Host".to_owned(), host.to_owned())).into_iter().collect();
    let request = Request { headers, ..Request::default() };
    verdict(snapshot, &question("buyer", to, Some(request)), VerdictBasis::PolicyOnly)
}

#[test]
fn foreign_host_has_no_verdict_and_lists_valid_hosts() {
    let snapshot = mesh_by_host(r"other\.example");
    for host in ["other.example", "v2.shop", "v1.shop:81", "v1.shop.", "", "v1.shop.mesh"] {
        let error = ask_host(&snapshot, "v1", Some(host)).unwrap_err();
        assert!(matches!(error, QuestionError::Request(_)), "{host}: {error}");
        let hosts =
            "v1, v1.shop, v1.shop.mesh.internal, v1.shop.mesh.internal:80, v1.shop:80, v1:80";
        assert!(error.to_string().contains(hosts), "{host}: {error}");
    }
    for host in ["v1", "V1.Shop", "v1.shop.mesh.internal:80"] {
        assert_eq!(ask_host(&snapshot, "v1", Some(host)).unwrap().answer, Answer::Denied, "{host}");
    }
    // Callers in another namespace have fewer hosts for the service.
    let far = Question { caller: "far/buyer".parse().unwrap(), ..question("buyer", "v1", None) };
    let service = snapshot.service(&far.service).unwrap();
    let port = ServicePort::new(far.service.clone(), 80);
    assert!(
        !ironmesh_catalog::hosts::hosts(&snapshot, &far.caller, service, &port)
            .contains(&"v1".to_owned())
    );
}

#[test]
fn host_dependent_verdict_reports_the_upstream_answer_too() {
    let snapshot = mesh_by_host("v1");
    let written = ask_host(&snapshot, "v1", Some("v1:80")).unwrap();
    assert_eq!(written.answer, Answer::Allowed);
    let at_upstream =
        UpstreamAnswer { host: "v1.shop.mesh.internal:80".to_owned(), answer: Answer::Denied };
    let compared = ComparedHost { host: "v1:80".to_owned(), at_upstream: Some(at_upstream) };
    assert_eq!(written.compared_host, Some(compared));
    // A request without a host counts as a call at a declared upstream.
    let silent = ask_host(&snapshot, "v1", None).unwrap();
    assert_eq!(silent.answer, Answer::Denied);
    let host = "v1.shop.mesh.internal:80".to_owned();
    assert_eq!(silent.compared_host, Some(ComparedHost { host, at_upstream: None }));
    // The verdict omits the upstream if its answer is the same.
    let both = ask_host(&mesh_by_host(r"v1(\..*)?"), "v1", Some("v1")).unwrap();
    assert_eq!((both.answer, both.compared_host.unwrap().at_upstream), (Answer::Allowed, None));
    // The verdict omits the host if no rule matches hosts.
    let verdict = ask("buyer", "v1", Some(get("/books/1", "gold")));
    assert_eq!(verdict.compared_host, None);
}

#[test]
fn caller_side_host_rules_apply_only_at_declared_upstreams() {
    // A split of `store` sends calls with one host to `v2`, which no account may call.
    let mut mesh = mesh();
    let group = HttpRouteGroup {
        namespace: name("shop"),
        name: name("beta"),
        matches: vec![HttpMatch {
            name: name("beta"),
            path: None,
            methods: Vec::new(),
            headers: [("host".into(), r"beta\..*".into())].into(),
            spot: spot(),
        }],
        spot: spot(),
    };
    mesh.http_route_groups.insert(key("beta"), Arc::new(group));
    let beta = TrafficSplit {
        namespace: name("shop"),
        name: name("beta"),
        service: "shop/store".parse().unwrap(),
        matches: vec![SplitMatch { group: name("beta"), matches: None, spot: spot() }],
        backends: vec![SplitBackend {
            service: "shop/v2".parse().unwrap(),
            weight: 1,
            spot: spot(),
        }],
        spot: spot(),
    };
    mesh.traffic_splits.insert(key("beta"), Arc::new(beta));
    let verdict = ask_host(&snapshot(mesh), "store", Some("beta.example")).unwrap();
    assert!(verdict.only_at_upstream);
    assert_eq!(
        branches(&verdict),
        [r"any method on any path with host `beta\..*`: all to shop/v2"]
    );
    assert_eq!(verdict.answer, Answer::Denied);
    // The server's sidecar sees the service's own host, whatever the application wrote.
    let mut mesh = mesh_by_host(r"other\.example").specification.as_ref().clone();
    let v1 = Service {
        external: Some(External {
            hostname: Some(Hostname::new("api.example.com").unwrap()),
            resolution: Resolution::Dns,
        }),
        endpoints: EndpointSource::Hostname,
        ..service("v1", &HTTP)
    };
    mesh.services.insert(v1.name.clone(), Arc::new(v1));
    // Calls of an external service are authorized before the host is rewritten.
    let verdict = ask_host(&snapshot(mesh), "v1", Some("other.example")).unwrap();
    assert_eq!((verdict.only_at_upstream, verdict.answer), (true, Answer::Allowed));
}

#[test]
fn wildcard_service_rejects_the_host_of_another_service() {
    let mut mesh = mesh();
    let outside = |of: &str, hostname: &str, resolution| Service {
        external: Some(External { hostname: Some(Hostname::new(hostname).unwrap()), resolution }),
        endpoints: EndpointSource::Hostname,
        ..service(of, &HTTP)
    };
    for one in [
        outside("wild", "*.example.com", Resolution::Passthrough),
        outside("one", "api.example.com", Resolution::Dns),
    ] {
        mesh.services.insert(one.name.clone(), Arc::new(one));
    }
    let snapshot = snapshot(mesh);
    let error = ask_host(&snapshot, "wild", Some("api.example.com")).unwrap_err().to_string();
    assert!(error.contains("reaches `shop/one`"), "{error}");
    assert!(ask_host(&snapshot, "wild", Some("a.example.com")).is_ok());
}
