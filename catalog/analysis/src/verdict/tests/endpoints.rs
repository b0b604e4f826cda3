//! Services whose endpoints are special: subsets, drained services and external ones.

use super::*;

#[test]
fn subset_is_authorized_as_its_service() {
    let mut mesh = mesh();
    let labels = [("version", "1")].into_iter().collect();
    let part = Service {
        account: "shop/v1".parse().unwrap(),
        endpoints: EndpointSource::Subset { of: "shop/v1".parse().unwrap(), labels },
        ..service("part", &HTTP)
    };
    mesh.services.insert(part.name.clone(), Arc::new(part));
    let question = question("buyer", "part", Some(get("/books/1", "gold")));
    let verdict = verdict(&snapshot(mesh), &question, VerdictBasis::PolicyOnly).unwrap();
    assert_eq!((&verdict.answer, verdict.in_scope), (&Answer::Allowed, true));
    let only = &verdict.destinations[0];
    assert_eq!(only.part_of, Some("shop/v1".parse().unwrap()));
    assert_eq!(only.port_verdict.by[0].target.object, "traffic target `shop/readers`");
}

#[test]
fn drained_service_is_allowed_and_has_no_endpoint() {
    let mut mesh = mesh();
    let drained = Service { drained: true, ..service("v1", &HTTP) };
    mesh.services.insert(drained.name.clone(), Arc::new(drained));
    for basis in [VerdictBasis::PolicyOnly, VerdictBasis::Mesh] {
        let question = question("buyer", "v1", Some(get("/books/1", "gold")));
        let verdict = verdict(&snapshot(mesh.clone()), &question, basis).unwrap();
        let only = &verdict.destinations[0];
        assert_eq!((&verdict.answer, only.result), (&Answer::Allowed, CallResult::NoEndpoint));
        assert_eq!((&only.endpoints, only.findings.len()), (&Some(Vec::new()), 1));
        assert!(only.findings[0].contains("`shop/v1` is drained"), "{:?}", only.findings);
    }
}

#[test]
fn external_service_access_is_enforced_by_the_caller_proxy() {
    let mut mesh = mesh();
    let outside = |hostname: &str, resolution| Service {
        external: Some(External { hostname: Some(Hostname::new(hostname).unwrap()), resolution }),
        endpoints: EndpointSource::Hostname,
        ..service("v1", &HTTP)
    };
    let v1 = outside("api.example.com", Resolution::Dns);
    mesh.services.insert(v1.name.clone(), Arc::new(v1));
    let mirrors = Service {
        name: "shop/mirrors".parse().unwrap(),
        ..outside("*.mirrors.example", Resolution::Passthrough)
    };
    mesh.services.insert(mirrors.name.clone(), Arc::new(mirrors));
    let snapshot = snapshot(mesh);
    let ask =
        |to, request| verdict(&snapshot, &question("buyer", to, Some(request)), VerdictBasis::Mesh);
    let allowed = ask("v1", get("/books/1", "gold")).unwrap();
    let only = &allowed.destinations[0];
    assert_eq!((&allowed.answer, only.result), (&Answer::Allowed, CallResult::Application));
    assert_eq!((only.enforcement, &only.endpoints), (Enforcement::ByTheCaller, &None));
    let outside = ExternalDestination {
        hostname: Some("api.example.com".to_owned()),
        resolution: "dns".to_owned(),
    };
    assert_eq!(only.external.as_ref(), Some(&outside));
    let denied = ask("v1", get("/shelf", "gold")).unwrap();
    let gets = denied.destinations[0].result;
    assert_eq!((&denied.answer, gets), (&Answer::Denied, CallResult::ForbiddenByCaller));
    // Passthrough forwards a call to its host, so a question about it needs a host.
    let to_host = |host: &str| {
        let mut request = get("/books/1", "gold");
        request.headers.push(("Host".to_owned(), host.to_owned()));
        ask("mirrors", request)
    };
    for host in ["a.mirrors.example", "B.A.Mirrors.Example:80"] {
        assert_eq!(to_host(host).unwrap().answer, Answer::Allowed, "{host}");
    }
    for host in ["mirrors.example", ".mirrors.example", "a.mirrors.example:81", "other.example"] {
        assert!(matches!(to_host(host), Err(QuestionError::Request(_))), "{host}");
    }
    let silent = ask("mirrors", get("/books/1", "gold")).unwrap_err().to_string();
    assert!(silent.contains("below `*.mirrors.example`"), "{silent}");
}
