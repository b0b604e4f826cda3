//! Verdicts: whether a caller may call a service, by which rule, and where the call goes.

mod bounds;
mod endpoints;
mod escaped_slashes;
mod headers;
mod hosts;
mod modes;
mod reach;
mod splits;
mod tcp;
mod treated;

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
        health: None,
        external: None,
        subsets: Vec::new(),
        upstreams: Vec::new(),
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
        leaving: ironmesh_catalog::LeavingProxies::new(),
        health: ironmesh_catalog::ReportedApplications::new(),
        certificates: imbl::OrdMap::new(),
        trust_bundle: Arc::new(TrustBundle { roots: String::new() }),
        revoked_callers: Arc::default(),
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

/// The branches of a verdict, each with its conditions.
fn branches(verdict: &Verdict) -> Vec<String> {
    let words = |branch: &SplitBranch| {
        let conditions = branch.conditions.iter().map(|one| format!("{}: ", one.traffic));
        format!("{}{branch}", conditions.collect::<String>())
    };
    verdict.branches.iter().map(words).collect()
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
fn verdict_without_request_covers_all_allowed_traffic() {
    let verdict = ask("buyer", "v1", None);
    assert_eq!(verdict.answer, Answer::Allowed);
    assert_eq!(verdict.destinations[0].port_verdict.by.len(), 1);
    assert_eq!(ask("cook", "v1", None).answer, Answer::Denied);
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
