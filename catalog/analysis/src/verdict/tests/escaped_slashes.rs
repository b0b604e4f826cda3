//! Escaped slashes in paths: the called service and each destination decide about them.

use super::*;

#[test]
fn escaped_slash_passes_only_services_that_keep_it() {
    let keep = |names: &[&str]| {
        let mut specification = mesh();
        for name in names {
            let name: ServiceName = format!("shop/{name}").parse().unwrap();
            let service = specification.services.get_mut(&name).unwrap();
            Arc::make_mut(service).escaped_slashes = EscapedSlashes::Keep;
        }
        specification
    };
    let path = "/books/a%2fb";
    let ask = |keeping: &[&str], of: &str, path: &str| {
        let question = question("buyer", of, Some(get(path, "gold")));
        verdict(&snapshot(keep(keeping)), &question, VerdictBasis::PolicyOnly).unwrap()
    };
    assert!(matches!(ask(&[], "v1", path).answer, Answer::Rejected(_)));
    assert_eq!(ask(&["v1"], "v1", path).answer, Answer::Allowed);
    // The called service decides at the caller's sidecar, and the destination at its own.
    assert!(matches!(ask(&["v1", "v2"], "store", path).answer, Answer::Rejected(_)));
    let verdict = ask(&["store", "v1"], "store", path);
    assert_eq!(verdict.answer, Answer::InPart);
    let results: Vec<_> =
        verdict.destinations.iter().map(|one| (one.result, one.port_verdict.rejected)).collect();
    assert_eq!(results, [(CallResult::Application, false), (CallResult::Rejected, true)]);
    // The server's sidecar rejects the path that arrives, before it normalizes it again.
    let verdict = ask(&["store"], "store", "/books/a%2fb/%2e%2e;x");
    assert_eq!(verdict.compared_path.as_deref(), Some("/books/"));
    assert!(
        verdict.destinations.iter().all(|one| one.result == CallResult::Rejected),
        "{verdict:#?}"
    );
    // Read as a slash, it could escape a granted path.
    for path_outside in ["/books/..%2fadmin", "/books/a%5c..%2F..%2f"] {
        let verdict = ask(&["v1"], "v1", path_outside);
        let unmet_rule = &verdict.destinations[0].port_verdict.missing[0];
        assert_eq!(unmet_rule.mismatches, [Mismatch::DisguisedPath], "{path_outside}");
    }
}
