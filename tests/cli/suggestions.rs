//! Suggestions for unknown commands.

use crate::command::Workspace;

#[test]
fn hidden_commands_are_not_suggested() {
    let Some(workspace) = Workspace::open() else { return };
    for (given, suggested) in
        [("ca", None), ("demo-chil", Some("'demo'")), ("polcy", Some("'policy'"))]
    {
        let run = workspace.run(&[given]);
        assert_eq!((run.code, &*run.stdout), (2, ""), "{run:?}");
        assert!(run.stderr.contains(&format!("unrecognized subcommand '{given}'")), "{run:?}");
        let hidden = ["demo-child", "demo-caretaker"].map(|name| format!("'{name}'"));
        assert!(!hidden.iter().any(|name| run.stderr.contains(name)), "{run:?}");
        assert_eq!(run.stderr.contains("tip:"), suggested.is_some(), "{run:?}");
        assert!(suggested.is_none_or(|name| run.stderr.contains(name)), "{run:?}");
    }
}
