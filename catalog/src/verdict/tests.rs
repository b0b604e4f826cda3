use std::sync::Arc;

use super::*;
use crate::access::TcpAccesses;
use crate::certificate::TrustBundle;
use crate::endpoint::Discovered;
use crate::finding::Spot;
use crate::identity::TrustDomain;
use crate::name::{Domain, Name};
use crate::policy::{
    HttpMatch, HttpRouteGroup, Method, PathRegex, RouteRule, SplitBackend, Subject, TcpRoute,
    TrafficSplit, TrafficTarget,
};
use crate::service::{EndpointSource, Mode, Protocol, Visibility};
use crate::snapshot::{Inputs, Mesh, Records};
use crate::specification::MeshSpecification;

fn name(text: &str) -> Name {
    Name::new(text).unwrap()
}

fn key(text: &str) -> (Name, Name) {
    (name("shop"), name(text))
}

fn spot() -> Spot {
    Spot::new(&"p.toml".into(), "", 0..0)
}

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
            })
            .collect(),
        endpoints: EndpointSource::Registered,
        mode: None,
        visibility: Visibility::Public,
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

/// `buyer` may GET `/books/…` of `v1` and nothing else; `store` is split into `v1` and `v2`; `cook` may
/// connect to port 3306 of `ledger`.
fn mesh() -> MeshSpecification {
    let http = [(80, Protocol::Http)];
    let ledger = [(3306, Protocol::Tcp), (3307, Protocol::Tcp)];
    let services = [
        service("store", &http),
        service("v1", &http),
        service("v2", &http),
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
    verdict(&snapshot(mesh()), &question(caller, to, request), Sight::PolicyAlone).unwrap()
}

#[test]
fn a_request_is_let_through_by_the_rule_that_it_meets() {
    let verdict = ask("buyer", "v1", Some(get("/x/../books//1?page=2", "gold")));
    assert_eq!(verdict.answer, Answer::Allowed);
    assert_eq!(verdict.compared_path.as_deref(), Some("/books/1"));
    let [only] = &verdict.destinations[..] else { panic!("{verdict:#?}") };
    let [permit] = &only.judgement.by[..] else { panic!("{verdict:#?}") };
    assert_eq!(permit.target.object, "traffic target `shop/readers`");
    assert_eq!(permit.rule.object, "match `read` of route group `shop/books`");
    assert_eq!(permit.way.to_string(), "GET on `/books/.*` with x-tier `gold|silver`");
    assert_eq!((only.gets, only.enforcement), (Gets::Application, Enforcement::Unknown));
}

#[test]
fn what_does_not_hold_is_told_each_by_itself() {
    let request = Request { method: "POST".to_owned(), path: "/shelf".to_owned(), headers: vec![] };
    let verdict = ask("buyer", "v1", Some(request));
    assert_eq!(verdict.answer, Answer::Denied);
    let [only] = &verdict.destinations[..] else { panic!("{verdict:#?}") };
    let [miss] = &only.judgement.missing[..] else { panic!("{verdict:#?}") };
    assert_eq!(
        miss.mismatches,
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
    assert_eq!(only.gets, Gets::Forbidden);
    // No expression covers a path that some servers read as another.
    let verdict = ask("buyer", "v1", Some(get("/books/..%3b/admin", "gold")));
    let miss = &verdict.destinations[0].judgement.missing[0];
    assert_eq!(miss.mismatches, [Mismatch::DisguisedPath]);
}

#[test]
fn who_is_not_named_is_told_who_is() {
    let verdict = ask("cook", "v1", Some(get("/books/1", "gold")));
    assert!(!verdict.known);
    let only = &verdict.destinations[0];
    assert_eq!(only.gets, Gets::Unknown);
    let callers = only.judgement.missing[0].other_callers.as_ref().unwrap();
    assert_eq!(callers.iter().map(ToString::to_string).collect::<Vec<_>>(), ["shop/buyer"]);
}

#[test]
fn calls_of_a_split_are_judged_where_they_go() {
    let verdict = ask("buyer", "store", Some(get("/books/1", "silver")));
    assert_eq!((&verdict.answer, verdict.known), (&Answer::InPart, true));
    let told: Vec<_> = verdict
        .destinations
        .iter()
        .map(|one| (one.port.to_string(), one.weight, one.judgement.allowed, one.gets))
        .collect();
    assert_eq!(
        told,
        [
            ("shop/v1|80".to_owned(), 9, true, Gets::Application),
            ("shop/v2|80".to_owned(), 1, false, Gets::Forbidden),
        ]
    );
}

#[test]
fn tcp_is_judged_by_port_and_without_requests() {
    let snapshot = snapshot(mesh());
    let ask = |port, request| {
        let question = Question { port, ..question("cook", "ledger", request) };
        verdict(&snapshot, &question, Sight::PolicyAlone)
    };
    assert_eq!(ask(Some(3306), None).unwrap().answer, Answer::Allowed);
    let denied = ask(Some(3307), None).unwrap();
    assert_eq!((denied.answer, denied.destinations[0].gets), (Answer::Denied, Gets::Unknown));
    assert!(denied.destinations[0].judgement.missing[0].rule.is_none());
    assert!(matches!(ask(Some(3306), Some(get("/", ""))), Err(QuestionError::Request(_))));
    let several = ask(None, None).unwrap_err().to_string();
    assert_eq!(several, "`shop/ledger` has several ports; say which: 3306, 3307");
}

#[test]
fn on_tcp_a_verdict_is_what_is_asked_in_the_handshake() {
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
            let verdict = verdict(&snapshot, &question, Sight::Mesh).unwrap();
            let is_let_in = access.callers.contain(&question.caller);
            assert_eq!(verdict.answer == Answer::Allowed, is_let_in, "{caller} at {port}");
            seen.push(is_let_in);
        }
    }
    assert_eq!(seen.iter().filter(|let_in| **let_in).count(), 4, "cook, and all at `open`");
    assert_eq!(seen.len(), 9);
}

#[test]
fn without_a_request_all_ways_are_told() {
    let verdict = ask("buyer", "v1", None);
    assert_eq!(verdict.answer, Answer::Allowed);
    assert_eq!(verdict.destinations[0].judgement.by.len(), 1);
    assert_eq!(ask("cook", "v1", None).answer, Answer::Denied);
}

#[test]
fn in_permissive_mode_targets_are_not_looked_at() {
    let mut mesh = mesh();
    let mut v2 = service("v2", &[(80, Protocol::Http)]);
    v2.mode = Some(Mode::Permissive);
    mesh.services.insert(v2.name.clone(), Arc::new(v2));
    let question = question("cook", "v2", Some(get("/", "")));
    let verdict = verdict(&snapshot(mesh), &question, Sight::Mesh).unwrap();
    assert_eq!(verdict.answer, Answer::Allowed);
    let only = &verdict.destinations[0];
    assert!(only.judgement.by.is_empty());
    assert_eq!(only.gets, Gets::NoEndpoint, "policy allows it, and nobody is there");
}

#[test]
fn names_that_policy_does_not_know_have_no_verdict() {
    let snapshot = snapshot(mesh());
    let ask = |question| verdict(&snapshot, &question, Sight::Mesh).unwrap_err();
    let unknown = ask(question("byer", "v1", None));
    assert!(matches!(unknown, QuestionError::UnknownAccount { .. }), "{unknown}");
    let unknown = ask(question("buyer", "v3", None));
    assert!(matches!(unknown, QuestionError::UnknownService { .. }), "{unknown}");
    let no_port = ask(Question { port: Some(81), ..question("buyer", "v1", None) });
    assert_eq!(no_port.to_string(), "`shop/v1` has no port 81; it has: 80");
    let rejected =
        verdict(&snapshot, &question("buyer", "v1", Some(get("/a%2fb", ""))), Sight::Mesh);
    assert!(matches!(rejected.unwrap().answer, Answer::Rejected(_)));
    assert!(matches!(
        ask(question("buyer", "v1", Some(get("/a b", "")))),
        QuestionError::Request(_)
    ));
}
