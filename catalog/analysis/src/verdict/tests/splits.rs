//! Traffic splits: each backend is authorized for itself, and conditions select the backends.

use super::*;

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
