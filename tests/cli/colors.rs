//! Colors and redrawn pictures on a terminal, and how NO_COLOR and TERM disable them.

use fs_err as fs;

use crate::command::Workspace;
use crate::server::Server;
use crate::terminal::TerminalProgram;

/// The environments, and whether output has colors in each.
const ENVIRONMENTS: [(&[(&str, &str)], bool); 5] = [
    (&[("TERM", "xterm")], true),
    (&[("TERM", "xterm"), ("NO_COLOR", "")], true),
    (&[("TERM", "xterm"), ("NO_COLOR", "1")], false),
    (&[("TERM", "dumb")], false),
    (&[("TERM", "dumb"), ("NO_COLOR", "")], false),
];

const BAD: &str = "[[service]]\nname = \"store\"\ncolour = \"red\"\n";
const GOOD: &str = "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

/// A route group with a rejected expression, in YAML.
const YAML: &str = "\
apiVersion: specs.smi-spec.io/v1alpha4
kind: HTTPRouteGroup
metadata: { name: routes }
spec:
  matches:
  - { name: buy, pathRegex: '/(?!x)' }
";

#[tokio::test]
async fn policy_commands_honor_no_color_and_dumb_terminals() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write("bad.toml", BAD);
    workspace.write("old.toml", "[[service]]\nname = \"till\"\n");
    workspace.write("new.toml", GOOD);
    workspace.write("routes.yaml", YAML);
    for arguments in [
        &["policy", "check", "bad.toml"][..],
        &["policy", "plan", "new.toml", "--offline", "old.toml"],
        &["policy", "import", "routes.yaml", "--from", "smi", "--out", "out.toml"],
    ] {
        for (environment, has_colors) in ENVIRONMENTS {
            // `import` does not overwrite files.
            drop(fs::remove_file(workspace.path().join("out.toml")));
            let mut terminal = TerminalProgram::start(workspace.command(arguments), environment);
            let status = terminal.end().await;
            let text = terminal.text().to_owned();
            let is_colored = text.contains("\u{1b}[");
            assert_eq!(
                is_colored, has_colors,
                "{arguments:?} {environment:?} {status:?}: {text:?}"
            );
        }
    }
}

#[tokio::test(flavor = "multi_thread")]
async fn log_and_watched_endpoints_honor_no_color_and_dumb_terminals() {
    for (environment, has_colors) in ENVIRONMENTS {
        let Some(server) = Server::open("") else { return };
        let endpoints = "endpoints = { static = [{ address = \"10.0.0.5\", port = 8080 }] }\n";
        server.workspace.write("policy/a.toml", &format!("{GOOD}{endpoints}"));
        let serve = server.workspace.command(&["serve", "--config", "ironmesh.toml"]);
        let mut log = TerminalProgram::start(serve, environment);
        let text = log.shows("xDS is served").await;
        assert_eq!(text.contains("\u{1b}["), has_colors, "{environment:?}: {text:?}");

        let watch = ["endpoints", "--watch", "--config", "ironmesh.toml"];
        let mut watched = TerminalProgram::start(server.workspace.command(&watch), environment);
        let text = watched.shows("default/store").await;
        // A redrawn picture needs a terminal that moves its cursor, and no colors.
        let is_dumb = environment.contains(&("TERM", "dumb"));
        assert_eq!(text.contains("\u{1b}[H"), !is_dumb, "{environment:?}: {text:?}");
    }
}

/// Help, errors of the command line, and findings.
#[test]
fn color_flag_beats_terminal_and_environment() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write("bad/a.toml", BAD);
    for arguments in [&["--help"][..], &["proxy", "ls"], &["policy", "check", "bad"]] {
        for (choice, expected) in [("always", true), ("never", false), ("auto", false)] {
            let mut command = workspace.command(&[arguments, &["--color", choice]].concat());
            command.env("NO_COLOR", "1");
            let run = crate::command::finish(&mut command);
            let has_color = format!("{}{}", run.stdout, run.stderr).contains("\x1b[");
            assert_eq!(has_color, expected, "{arguments:?} {choice}: {run:?}");
        }
    }
    let run = workspace.run(&["status", "--color", "blue"]);
    assert!(
        run.code == 2 && run.stderr.contains("expected `auto`, `always` or `never`"),
        "{run:?}"
    );
}
