//! The mode and the visibility of the called service.

use super::*;

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
