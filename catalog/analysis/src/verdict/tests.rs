//! Verdicts: whether a caller may call a service, by which rule, and where the call goes.

use std::sync::Arc;

use ironmesh_catalog::certificate::TrustBundle;
use ironmesh_catalog::endpoint::Discovered;
use ironmesh_catalog::endpoint_source::EndpointSource;
use ironmesh_catalog::finding::Spot;
use ironmesh_catalog::identity::TrustDomain;
use ironmesh_catalog::name::{Domain, Hostname, Name};
use ironmesh_catalog::policy::{
    EgressMode, HttpMatch, HttpRouteGroup, Method, PathRegex, RouteRule, SplitBackend, SplitMatch,
    Subject, TcpRoute, TrafficSplit, TrafficTarget,
};
use ironmesh_catalog::service::{EscapedSlashes, Mode, Protocol, Resolution, Visibility};
use ironmesh_catalog::snapshot::{Inputs, Mesh, Records};
use ironmesh_catalog::specification::MeshSpecification;
use ironmesh_catalog::tcp_access::TcpAccesses;

use super::*;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key(text: &str) -> (Name, Name) {
    (name("shop"), name(text))
}

fn spot() -> Spot {
    Spot::new(&"p.toml".into(), "", 0..0)
}

const HTTP: [(u16, Protocol); 1] = [(80, Protocol::Http)];

fn service(of: &str, ports: &[(u16, Protocol)]) -> Service {
    Service {
        name: format!("shop/{of}").parse().unwrap(),
        account: format!("shop/{of}").parse().unwrap(),
        ports: ports
            .iter()
            .map(|(number, protocol)| Port {
                name: name(&format!("p{number}")),
                number: *number,
                protocol: *protocol,
                target: *number,
                allowed_targets: Vec::new(),
            })
            .collect(),
        endpoints: EndpointSource::registered(),
        mode: None,
        visibility: Visibility::Public,
        escaped_slashes: EscapedSlashes::Reject,
        max_connection_duration: None,
        drained: false,
        external: None,
        subsets: Vec::new(),
        spot: spot(),
    }
}

fn target(target: &str, destination: &str, source: &str, rules: Vec<RouteRule>) -> TrafficTarget {
    let subject = |account: &str| Subject::Account(format!("shop/{account}").parse().unwrap());
    TrafficTarget {
        namespace: name("shop"),
        name: name(target),
        destination: subject(destination),
        sources: vec![subject(source)],
        rules,
        spot: spot(),
    }
}

/// A mesh in which `buyer` may GET `/books/…` of `v1` and nothing else, and `cook` may connect to
/// port 3306 of `ledger`. Calls of `store` are split between `v1` and `v2`.
fn mesh() -> MeshSpecification {
    let ledger = [(3306, Protocol::Tcp), (3307, Protocol::Tcp)];
    let services = [
        service("store", &HTTP),
        service("v1", &HTTP),
        service("v2", &HTTP),
        service("ledger", &ledger),
        service("buyer", &[]),
        service("cook", &[]),
    ];
    let group = HttpRouteGroup {
        namespace: name("shop"),
        name: name("books"),
        matches: vec![HttpMatch {
            name: name("read"),
            path: Some(PathRegex { text: "/books/.*".into(), before_query: None }),
            methods: vec![Method("GET".into())],
            headers: [("x-tier".into(), "gold|silver".into())].into(),
            spot: spot(),
        }],
        spot: spot(),
    };
    let http = |group| RouteRule::Http { group: name(group), matches: None, spot: spot() };
    let tcp = |route| RouteRule::Tcp { route: name(route), spot: spot() };
    let targets = [
        target("readers", "v1", "buyer", vec![http("books")]),
        target("cooks", "ledger", "cook", vec![tcp("sql")]),
    ];
    let route = TcpRoute {
        namespace: name("shop"),
        name: name("sql"),
        ports: Some(vec![3306]),
        spot: spot(),
    };
    let backend = |to: &str, weight| SplitBackend {
        service: format!("shop/{to}").parse().unwrap(),
        weight,
        spot: spot(),
    };
    let split = TrafficSplit {
        namespace: name("shop"),
        name: name("halves"),
        service: "shop/store".parse().unwrap(),
        matches: Vec::new(),
        backends: vec![backend("v1", 9), backend("v2", 1), backend("store", 0)],
        spot: spot(),
    };
    MeshSpecification {
        services: services.into_iter().map(|one| (one.name.clone(), Arc::new(one))).collect(),
        traffic_targets: targets
            .into_iter()
            .map(|one| ((one.namespace.clone(), one.name.clone()), Arc::new(one)))
            .collect(),
        http_route_groups: [(key("books"), Arc::new(group))].into_iter().collect(),
        tcp_routes: [(key("sql"), Arc::new(route))].into_iter().collect(),
        traffic_splits: [(key("halves"), Arc::new(split))].into_iter().collect(),
        ..MeshSpecification::default()
    }
}

fn snapshot(specification: MeshSpecification) -> Snapshot {
    let domain = Domain::default();
    let inputs = Inputs {
        mesh: Mesh { trust_domain: TrustDomain::new(domain.clone()), domain },
        mode: Mode::Strict,
        egress: EgressMode::Policy,
        specification: Arc::new(specification),
        discovered: Discovered::default(),
        records: Records::new(),
        revoked: Records::new(),
        certificates: imbl::OrdMap::new(),
        trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
    };
    Snapshot::assemble(inputs, TcpAccesses::default())
}

fn question(caller: &str, to: &str, request: Option<Request>) -> Question {
    Question {
        caller: format!("shop/{caller}").parse().unwrap(),
        service: format!("shop/{to}").parse().unwrap(),
        port: None,
        request,
    }
}

fn get(path: &str, tier: &str) -> Request {
    let headers = vec![("X-Tier".to_owned(), tier.to_owned())];
    Request { path: path.to_owned(), headers, ..Request::default() }
}

fn ask(caller: &str, to: &str, request: Option<Request>) -> Verdict {
    verdict(&snapshot(mesh()), &question(caller, to, request), VerdictBasis::PolicyOnly).unwrap()
}

#[test]
fn request_is_allowed_by_the_matching_rule() {
    let verdict = ask("buyer", "v1", Some(get("/x/../books//1?page=2", "gold")));
    assert_eq!(verdict.answer, Answer::Allowed);
    assert_eq!(verdict.compared_path.as_deref(), Some("/books/1"));
    let [only] = &verdict.destinations[..] else { panic!("{verdict:#?}") };
    let [permit] = &only.port_verdict.by[..] else { panic!("{verdict:#?}") };
    assert_eq!(permit.target.object, "traffic target `shop/readers`");
    assert_eq!(permit.rule.object, "match `read` of route group `shop/books`");
    assert_eq!(permit.traffic.to_string(), "GET on `/books/.*` with x-tier `gold|silver`");
    assert_eq!((only.result, only.enforcement), (CallResult::Application, Enforcement::Unknown));
}

#[test]
fn denied_request_lists_each_mismatch() {
    let request = Request { method: "POST".to_owned(), path: "/shelf".to_owned(), headers: vec![] };
    let verdict = ask("buyer", "v1", Some(request));
    assert_eq!(verdict.answer, Answer::Denied);
    let [only] = &verdict.destinations[..] else { panic!("{verdict:#?}") };
    let [unmet_rule] = &only.port_verdict.missing[..] else { panic!("{verdict:#?}") };
    assert_eq!(
        unmet_rule.mismatches,
        [
            Mismatch::Method { allowed: vec!["GET".into()] },
            Mismatch::Path { expression: "/books/.*".into() },
            Mismatch::Header {
                name: "x-tier".into(),
                expression: "gold|silver".into(),
                values: Vec::new()
            },
        ]
    );
    assert_eq!(only.result, CallResult::Forbidden);
    // No expression allows a path that some servers read as a different one.
    let verdict = ask("buyer", "v1", Some(get("/books/..%3b/admin", "gold")));
    let unmet_rule = &verdict.destinations[0].port_verdict.missing[0];
    assert_eq!(unmet_rule.mismatches, [Mismatch::DisguisedPath]);
}

#[test]
fn caller_without_grant_gets_the_list_of_allowed_callers() {
    let verdict = ask("cook", "v1", Some(get("/books/1", "gold")));
    assert!(!verdict.in_scope);
    let only = &verdict.destinations[0];
    assert_eq!(only.result, CallResult::Unknown);
    let callers = only.port_verdict.missing[0].other_callers.as_ref().unwrap();
    assert_eq!(callers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["shop/buyer"]);
}

#[test]
fn split_calls_are_authorized_per_backend() {
    let verdict = ask("buyer", "store", Some(get("/books/1", "silver")));
    assert_eq!((&verdict.answer, verdict.in_scope), (&Answer::InPart, true));
    let reported: Vec<_> = verdict
        .destinations
        .iter()
        .map(|one| (one.port.to_string(), one.port_verdict.allowed, one.result))
        .collect();
    assert_eq!(
        reported,
        [
            ("shop/v1|80".to_owned(), true, CallResult::Application),
            ("shop/v2|80".to_owned(), false, CallResult::Forbidden),
        ]
    );
    assert_eq!(branches(&verdict), ["90 % shop/v1, 10 % shop/v2"]);
    let [split] = &verdict.splits[..] else { panic!("{verdict:#?}") };
    assert_eq!(split.object, "traffic split `shop/halves`");
}

/// The branches of a verdict, each with its conditions.
fn branches(verdict: &Verdict) -> Vec<String> {
    let words = |branch: &SplitBranch| {
        let conditions = branch.conditions.iter().map(|one| format!("{}: ", one.traffic));
        format!("{}{branch}", conditions.collect::<String>())
    };
    verdict.branches.iter().map(words).collect()
}

/// `store` sends what meets `read` to `v2`, and otherwise all to `v1`, which is split in turn.
fn conditional() -> MeshSpecification {
    let mut mesh = mesh();
    let split = |name: &str, service: &str, conditional: bool, backends: &[(&str, u32)]| {
        let backend = |(to, weight): &(&str, u32)| SplitBackend {
            service: format!("shop/{to}").parse().unwrap(),
            weight: *weight,
            spot: spot(),
        };
        let matches = SplitMatch { group: key("books").1, matches: None, spot: spot() };
        let split = TrafficSplit {
            namespace: key(name).0,
            name: key(name).1,
            service: format!("shop/{service}").parse().unwrap(),
            matches: conditional.then_some(matches).into_iter().collect(),
            backends: backends.iter().map(backend).collect(),
            spot: spot(),
        };
        (key(name), Arc::new(split))
    };
    mesh.services.insert(
        "shop/v3".parse().unwrap(),
        Arc::new(Service { account: "shop/v1".parse().unwrap(), ..service("v3", &HTTP) }),
    );
    mesh.traffic_splits = [
        split("readers", "store", true, &[("v2", 1)]),
        split("rest", "store", false, &[("v1", 1), ("gone", 1)]),
        split("behind", "v1", false, &[("v1", 1), ("v3", 3)]),
        split("elsewhere", "ledger", false, &[("ledger", 1)]),
    ]
    .into_iter()
    .collect();
    mesh
}

#[test]
fn nested_split_conditions_select_the_backends() {
    let snapshot = snapshot(conditional());
    let ask = |request| {
        verdict(&snapshot, &question("buyer", "store", request), VerdictBasis::PolicyOnly).unwrap()
    };
    let reader = ask(Some(get("/books/1", "gold")));
    assert_eq!(branches(&reader), ["GET on `/books/.*` with x-tier `gold|silver`: all to shop/v2"]);
    assert_eq!(reader.answer, Answer::Denied, "no target allows calls of v2");
    let other = ask(Some(get("/books/1", "lead")));
    assert_eq!(branches(&other), ["25 % shop/v1, 75 % shop/v3"]);
    assert_eq!(other.answer, Answer::Denied, "the rule also requires a tier");
    let all = ask(None);
    assert_eq!(
        branches(&all),
        [
            "GET on `/books/.*` with x-tier `gold|silver`: all to shop/v2",
            "25 % shop/v1, 75 % shop/v3"
        ]
    );
    assert_eq!((&all.answer, all.destinations.len()), (&Answer::InPart, 3));
    let splits: Vec<_> = all.splits.iter().map(|split| split.object.as_str()).collect();
    assert_eq!(
        splits,
        [
            "traffic split `shop/readers`",
            "traffic split `shop/rest`",
            "traffic split `shop/behind`"
        ]
    );
}

#[test]
fn private_service_denies_other_namespaces_despite_grants() {
    for mode in [Mode::Strict, Mode::Permissive] {
        let mut mesh = mesh();
        let private = |service: Service| Service {
            visibility: Visibility::Private,
            mode: Some(mode),
            ..service
        };
        let v1 = private(service("v1", &HTTP));
        mesh.services.insert(v1.name.clone(), Arc::new(v1));
        let mut readers = target("readers", "v1", "buyer", Vec::new());
        readers.rules = mesh.traffic_targets[&key("readers")].rules.clone();
        let stranger: ServiceAccount = "office/auditor".parse().unwrap();
        readers.sources.push(Subject::Account(stranger.clone()));
        mesh.traffic_targets.insert(key("readers"), Arc::new(readers));
        let snapshot = snapshot(mesh);
        let ask = |caller: &ServiceAccount, to| {
            let request = Some(get("/books/1", "gold"));
            let question = Question { caller: caller.clone(), ..question("buyer", to, request) };
            verdict(&snapshot, &question, VerdictBasis::PolicyOnly).unwrap()
        };
        assert_eq!(ask(&"shop/buyer".parse().unwrap(), "v1").answer, Answer::Allowed);
        let denied = ask(&stranger, "v1");
        assert_eq!((&denied.answer, denied.in_scope), (&Answer::Denied, false), "{mode}");
        let only = &denied.destinations[0];
        assert_eq!(only.result, CallResult::Unknown);
        assert_eq!(only.port_verdict.private_to, Some(name("shop")));
        assert!(only.port_verdict.by.is_empty());
        // In strict mode the verdict lists the target that has no effect.
        let in_vain = only.port_verdict.missing.iter().filter(|one| one.mismatches.is_empty());
        assert_eq!(in_vain.count(), usize::from(mode == Mode::Strict));
        // A split does not reveal the private backend either.
        assert!(!ask(&stranger, "store").in_scope);
    }
}

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

#[test]
fn tcp_verdict_depends_on_the_port_and_accepts_no_request() {
    let snapshot = snapshot(mesh());
    let ask = |port, request| {
        let question = Question { port, ..question("cook", "ledger", request) };
        verdict(&snapshot, &question, VerdictBasis::PolicyOnly)
    };
    assert_eq!(ask(Some(3306), None).unwrap().answer, Answer::Allowed);
    let denied = ask(Some(3307), None).unwrap();
    assert_eq!(
        (denied.answer, denied.destinations[0].result),
        (Answer::Denied, CallResult::Unknown)
    );
    assert!(denied.destinations[0].port_verdict.missing[0].rule.is_none());
    assert!(matches!(ask(Some(3306), Some(get("/", ""))), Err(QuestionError::Request(_))));
    let several = ask(None, None).unwrap_err().to_string();
    assert_eq!(several, "`shop/ledger` has several ports; say which: 3306, 3307");
}

#[test]
fn tcp_verdict_equals_the_caller_list_of_the_handshake() {
    let mut mesh = mesh();
    let mut open = service("open", &[(3306, Protocol::Tcp)]);
    open.mode = Some(Mode::Permissive);
    mesh.services.insert(open.name.clone(), Arc::new(open));
    let snapshot = snapshot(mesh);
    let mut seen = Vec::new();
    for (port, access) in &snapshot.tcp_accesses.ports {
        for caller in ["cook", "buyer", "ledger"] {
            let question = Question {
                caller: format!("shop/{caller}").parse().unwrap(),
                service: port.service.clone(),
                port: Some(port.port),
                request: None,
            };
            let verdict = verdict(&snapshot, &question, VerdictBasis::Mesh).unwrap();
            let is_caller = access.callers.contain(&question.caller);
            assert_eq!(verdict.answer == Answer::Allowed, is_caller, "{caller} at {port}");
            seen.push(is_caller);
        }
    }
    assert_eq!(seen.iter().filter(|is_caller| **is_caller).count(), 4, "cook, and all at `open`");
    assert_eq!(seen.len(), 9);
}

#[test]
fn verdict_without_request_covers_all_allowed_traffic() {
    let verdict = ask("buyer", "v1", None);
    assert_eq!(verdict.answer, Answer::Allowed);
    assert_eq!(verdict.destinations[0].port_verdict.by.len(), 1);
    assert_eq!(ask("cook", "v1", None).answer, Answer::Denied);
}

#[test]
fn permissive_mode_ignores_traffic_targets() {
    let mut mesh = mesh();
    let mut v2 = service("v2", &[(80, Protocol::Http)]);
    v2.mode = Some(Mode::Permissive);
    mesh.services.insert(v2.name.clone(), Arc::new(v2));
    let question = question("cook", "v2", Some(get("/", "")));
    let verdict = verdict(&snapshot(mesh), &question, VerdictBasis::Mesh).unwrap();
    assert_eq!(verdict.answer, Answer::Allowed);
    let only = &verdict.destinations[0];
    assert!(only.port_verdict.by.is_empty());
    assert_eq!(only.result, CallResult::NoEndpoint, "policy allows the call; no endpoint is known");
}

#[test]
fn audit_mode_allows_all_and_reports_strict_denials() {
    let mut mesh = mesh();
    let mut v1 = service("v1", &HTTP);
    v1.mode = Some(Mode::Audit);
    mesh.services.insert(v1.name.clone(), Arc::new(v1));
    let snapshot = snapshot(mesh);
    let ask = |caller| {
        let question = question(caller, "v1", Some(get("/books/1", "gold")));
        let verdict = verdict(&snapshot, &question, VerdictBasis::Mesh).unwrap();
        assert_eq!(verdict.answer, Answer::Allowed, "{caller}");
        verdict.destinations[0].port_verdict.clone()
    };
    let buyer = ask("buyer");
    assert_eq!((buyer.strict_denies, buyer.by.len(), buyer.missing.len()), (false, 1, 0));
    let cook = ask("cook");
    assert_eq!((cook.strict_denies, cook.by.len(), cook.missing.len()), (true, 0, 1));
}

#[test]
fn private_backends_have_no_share_for_other_namespaces() {
    let mut mesh = mesh();
    for of in ["v1", "store"] {
        let mut service = service(of, &HTTP);
        service.mode = Some(Mode::Permissive);
        service.visibility = Visibility::Public;
        mesh.services.insert(service.name.clone(), Arc::new(service));
    }
    let mut v2 = service("v2", &HTTP);
    v2.visibility = Visibility::Private;
    let auditor = ServiceName::new(name("office"), name("auditor"));
    let account = "office/auditor".parse().unwrap();
    let auditor = Service { name: auditor, account, ..service("auditor", &[]) };
    for service in [v2, auditor] {
        mesh.services.insert(service.name.clone(), Arc::new(service));
    }
    let snapshot = snapshot(mesh);
    let shares = |caller: &str| {
        let question =
            Question { caller: caller.parse().unwrap(), ..question("buyer", "store", None) };
        let verdict = verdict(&snapshot, &question, VerdictBasis::Mesh).unwrap();
        let left_out: Vec<_> = verdict.left_out.iter().map(ToString::to_string).collect();
        (verdict.branches[0].to_string(), left_out)
    };
    assert_eq!(shares("shop/buyer"), ("90 % shop/v1, 10 % shop/v2".to_owned(), vec![]));
    let elsewhere = ("all to shop/v1".to_owned(), vec!["shop/v2".to_owned()]);
    assert_eq!(shares("office/auditor"), elsewhere);
}

#[test]
fn unknown_account_service_or_port_is_a_question_error() {
    let snapshot = snapshot(mesh());
    let ask = |question| verdict(&snapshot, &question, VerdictBasis::Mesh).unwrap_err();
    let unknown = ask(question("byer", "v1", None));
    assert!(matches!(unknown, QuestionError::UnknownAccount { .. }), "{unknown}");
    let unknown = ask(question("buyer", "v3", None));
    assert!(matches!(unknown, QuestionError::UnknownService { .. }), "{unknown}");
    let no_port = ask(Question { port: Some(81), ..question("buyer", "v1", None) });
    assert_eq!(no_port.to_string(), "`shop/v1` has no port 81; it has: 80");
    let rejected =
        verdict(&snapshot, &question("buyer", "v1", Some(get("/a%2fb", ""))), VerdictBasis::Mesh);
    assert!(matches!(rejected.unwrap().answer, Answer::Rejected(_)));
    assert!(matches!(
        ask(question("buyer", "v1", Some(get("/a b", "")))),
        QuestionError::Request(_)
    ));
}

mod bounds;
mod escaped_slashes;
mod headers;
mod hosts;
mod treated;
