//! Commands whose stdout is closed or cannot be written.

use std::io::pipe;
use std::process::{Command, Output, Stdio};

use crate::command::Workspace;

const GOOD: &str = "[[service]]\nname = \"a\"\nports = [{ port = 80, protocol = \"http\" }]\n";

const SMI: &str = "apiVersion: specs.smi-spec.io/v1alpha4\nkind: TCPRoute\nmetadata:\n  name: r\nspec:\n  \
                   matches:\n    ports: [80]\n";

/// Commands with output, and their exit codes.
const COMMANDS: &[(&[&str], i32)] = &[
    (&["--help"], 0),
    (&["--version"], 0),
    (&["explain", "IM0302"], 0),
    (&["explain", "IM0302", "--output", "json"], 0),
    (&["policy", "schema"], 0),
    (&["policy", "import", "smi.yaml", "--from", "smi"], 0),
    (&["policy", "import", "smi.yaml", "--from", "smi", "--output", "json"], 0),
    (&["policy", "check", "good"], 0),
    (&["policy", "check", "bad"], 3),
    (&["policy", "check", "bad", "--output", "json"], 3),
    (&["policy", "plan", "good", "--offline", "good"], 0),
    (&["policy", "plan", "good", "--offline", "bad"], 3),
    (&["policy", "explain", "--offline", "good", "--from", "default/a", "--to", "default/a"], 1),
];

fn workspace() -> Option<Workspace> {
    let workspace = Workspace::open()?;
    workspace.write("good/a.toml", GOOD);
    workspace.write("smi.yaml", SMI);
    workspace.write("bad/a.toml", "[[service]]\nname = 1\n");
    Some(workspace)
}

fn run(command: &mut Command, stdout: impl Into<Stdio>) -> (Option<i32>, String) {
    let Output { status, stderr, .. } = command.stdout(stdout).output().unwrap();
    (status.code(), String::from_utf8(stderr).unwrap())
}

#[test]
fn closed_stdout_does_not_change_the_exit_code() {
    let Some(workspace) = workspace() else { return };
    for (arguments, code) in COMMANDS {
        let (reader, stdout) = pipe().unwrap();
        drop(reader);
        let unread = run(&mut workspace.command(arguments), stdout);
        assert_eq!(unread, run(&mut workspace.command(arguments), Stdio::null()), "{arguments:?}");
        assert_eq!(unread.0, Some(*code), "{arguments:?}");
    }
}

#[test]
fn unwritable_stdout_fails_the_command() {
    let Some(workspace) = workspace() else { return };
    for (arguments, _) in COMMANDS.iter().filter(|(arguments, _)| !arguments[0].starts_with('-')) {
        let full = fs_err::File::create("/dev/full").unwrap();
        let (code, reported) = run(&mut workspace.command(arguments), full.into_parts().0);
        // 1 would mean that a call is denied.
        let failed = if arguments.starts_with(&["policy", "explain"]) { 2 } else { 1 };
        assert_eq!(code, Some(failed), "{arguments:?}: {reported}");
        let reported = reported.lines().last().unwrap_or_default();
        let expected = "ironmesh: cannot write to stdout: No space left on device (os error 28)";
        assert_eq!(reported, expected, "{arguments:?}");
    }
}
