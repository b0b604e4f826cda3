//! Verdicts about TCP ports.

use super::*;

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
