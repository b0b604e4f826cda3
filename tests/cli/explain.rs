//! `ironmesh explain`.

use crate::command::Workspace;

#[test]
fn finding_code_is_explained_as_text_and_json() {
    let Some(workspace) = Workspace::open() else { return };
    let run = workspace.run(&["explain", "im302"]);
    assert_eq!((run.code, &*run.stderr), (0, ""), "{run:?}");
    assert!(run.stdout.starts_with("IM0302: regular expression\n\n"), "{}", run.stdout);
    assert!(run.stdout.contains("\nBad\n---\n\n    [[http_route_group]]\n"), "{}", run.stdout);
    let run = workspace.run(&["explain", "IM0302", "--output", "json"]);
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(
        (&json["code"], &json["title"]),
        (&"IM0302".into(), &"regular expression".into()),
        "{json:#}"
    );
    assert!(json["page"].as_str().unwrap().starts_with("# IM0302: "), "{json:#}");
}

#[test]
fn unknown_code_is_answered_with_the_nearest_codes() {
    let Some(workspace) = Workspace::open() else { return };
    let run = workspace.run(&["explain", "IM9999"]);
    assert_eq!((run.code, &*run.stdout), (2, ""), "{run:?}");
    assert!(run.stderr.contains("there is no code IM9999"), "{}", run.stderr);
    let named = run.stderr.lines().filter(|line| line.starts_with("  IM"));
    assert_eq!(named.count(), 3, "{}", run.stderr);
    let run = workspace.run(&["explain", "imx"]);
    assert!(run.stderr.contains("a code is written `IM0101`"), "{}", run.stderr);
    assert!(!run.stderr.contains("\n  IM"), "{}", run.stderr);
}
