//! `--watch`: pictures on a terminal, and each change elsewhere, also across a restart of the control plane.

use ironmesh_tests::eventually;
use ironmesh_tests::process::Child;
use rustix::process::Signal;
use serde_json::Value;
use tokio::process::Command;

use crate::server::Server;
use crate::terminal::TerminalProgram;

const STORE: &str = "[[service]]\nname = \"store\"\nports = [{ port = 80, protocol = \"http\" }]\n";

/// A service with an endpoint that has no proxy.
const TILL: &str = "[[service]]\nname = \"till\"\nports = [{ port = 80, protocol = \"http\" }]\n\
                    endpoints = { static = [{ address = \"10.0.0.9\" }] }\n";

/// The commands, and words of what they show about both services.
const COMMANDS: [(&[&str], &str); 5] = [
    (&["status"], "control plane  ready"),
    (&["proxy", "list"], "NAME  SERVICES"),
    (&["service", "list"], "default/store"),
    (&["finding", "list"], "IM0404"),
    (&["endpoints"], "default/till"),
];

async fn open() -> Option<(Server, Child)> {
    let server = Server::open("")?;
    server.workspace.write("policy/store.toml", STORE);
    server.workspace.write("policy/till.toml", TILL);
    let child = server.start().await;
    server.ready().await;
    Some((server, child))
}

fn watch<'a>(words: &[&'a str]) -> Vec<&'a str> {
    [words, &["--watch", "--config", "ironmesh.toml"]].concat()
}

/// A state that is no longer current is never shown without its age.
#[tokio::test]
async fn watched_status_marks_a_restart_and_continues() {
    let Some((server, mut child)) = open().await else { return };
    let command = server.workspace.command(&watch(&["status"]));
    let mut terminal = TerminalProgram::start(command, &[("TERM", "xterm")]);
    terminal.resize(120, 40);
    let has =
        |words: &'static str| move |rows: &[String]| rows.iter().any(|row| row.contains(words));
    let is_current = |rows: &[String]| rows.get(1).is_some_and(String::is_empty);
    let rows = terminal.picture_with("the status", has("control plane  ready")).await;
    assert!(
        rows[0].contains("Z  every 1s: ironmesh status --watch") && is_current(&rows),
        "{rows:#?}"
    );

    assert!(child.terminate().await.success());
    let rows = terminal.picture_with("the warning", has("NO ANSWER since 20")).await;
    assert!(
        rows[1].contains("below is the last state: ") && has("control plane  ready")(&rows),
        "{rows:#?}"
    );
    let _child = server.start().await;
    server.ready().await;
    let is_back = |rows: &[String]| is_current(rows) && has("control plane  ready")(rows);
    terminal.picture_with("the status again", is_back).await;

    terminal.signal(Signal::INT);
    assert_eq!(terminal.end().await, Some(130));
    let text = terminal.text();
    assert!(
        text.starts_with("\x1b[?1049h\x1b[?25l") && text.ends_with("\x1b[?25h\x1b[?1049l"),
        "{text:?}"
    );
    assert!(!text.contains("\x1b[2J"), "{text:?}");
}

/// The leader of a session has no shell that could continue it, as after `ssh -t`.
#[tokio::test]
async fn leader_of_a_session_goes_on_after_a_suspend() {
    let Some((server, _child)) = open().await else { return };
    let command = server.workspace.command(&watch(&["service", "list"]));
    let mut leader = std::process::Command::new("setsid");
    leader.arg("--ctty").arg(command.get_program()).args(command.get_args());
    leader.envs(command.get_envs().filter_map(|(name, value)| Some((name, value?))));
    leader.current_dir(server.workspace.path());
    let mut terminal = TerminalProgram::start(leader, &[("TERM", "xterm")]);
    let has_store = |rows: &[String]| rows.iter().any(|row| row.contains("default/store"));
    terminal.picture_with("the services", has_store).await;
    terminal.signal(Signal::TSTP);
    eventually("a second picture", async || {
        let text = terminal.text();
        let pictures = text.matches("\x1b[?1049h").count();
        if pictures == 2 { Ok(()) } else { Err(format!("{pictures} pictures: {text:?}")) }
    })
    .await;
    terminal.signal(Signal::INT);
    assert_eq!(terminal.end().await, Some(130));
}

#[tokio::test]
async fn picture_fits_a_terminal_of_any_size() {
    let Some((server, _child)) = open().await else { return };
    let many = |n: u32| STORE.replace("store", &format!("store-{n:02}"));
    server.workspace.write("policy/many.toml", &(0..30).map(many).collect::<Vec<_>>().join("\n"));
    let command = server.workspace.command(&watch(&["service", "list"]));
    let mut terminal = TerminalProgram::start(command, &[("TERM", "xterm")]);
    for (columns, lines) in [(40, 10), (100, 20), (12, 4)] {
        terminal.resize(columns, lines);
        // The heading and 32 services, of which two lines of the terminal show none, and one the count of the others.
        let more = 33 - (lines - 3);
        let words: String =
            format!("… {more} more lines").chars().take(usize::from(columns) - 1).collect();
        let rows = terminal
            .picture_with("a picture of this size", |rows| {
                rows.last().is_some_and(|row| row.starts_with(&words))
            })
            .await;
        assert_eq!(rows.len(), usize::from(lines), "{rows:#?}");
        assert!(rows.iter().all(|row| row.chars().count() <= usize::from(columns)), "{rows:#?}");
    }
}

#[tokio::test]
async fn command_that_fails_at_once_leaves_the_terminal_as_it_was() {
    let Some(server) = Server::open("") else { return };
    for (words, _) in COMMANDS {
        let command = server.workspace.command(&watch(words));
        let mut terminal = TerminalProgram::start(command, &[("TERM", "xterm")]);
        assert_eq!(terminal.end().await, Some(4), "{words:?}");
        let text = terminal.text();
        assert!(
            text.contains("is `ironmesh serve` running") && !text.contains("\x1b[?"),
            "{text:?}"
        );
    }
}

#[tokio::test]
async fn other_output_gets_each_changed_state_once() {
    let Some((server, _child)) = open().await else { return };
    for (words, first) in COMMANDS {
        for (output, file) in [("text", "text.log"), ("json", "json.log")] {
            let arguments = [&watch(words)[..], &["--output", output]].concat();
            let log = server.workspace.path().join(file);
            let _ = fs_err::remove_file(&log);
            let command = server.workspace.command(&arguments);
            let mut child = Child::start("ironmesh --watch", &mut Command::from(command), &log);
            let text = async |what: &str, is_expected: &dyn Fn(&str) -> bool| {
                eventually(what, async || {
                    let text = fs_err::read_to_string(&log).unwrap();
                    if is_expected(&text) { Ok(text) } else { Err(text) }
                })
                .await
            };
            let is_shown = |text: &str| text.ends_with('\n') && text.contains(first);
            let is_line = |text: &str| text.ends_with('\n');
            let text = match output {
                "text" => text(first, &is_shown).await,
                _ => text("a line", &is_line).await,
            };
            assert!(!text.contains('\x1b'), "{text:?}");
            if output == "json" {
                let lines: Vec<_> = text.lines().collect();
                assert!(
                    lines.iter().all(|line| serde_json::from_str::<Value>(line).is_ok()),
                    "{text}"
                );
            } else {
                assert!(text.starts_with("20"), "{words:?}: {text}");
            }
            child.kill_hard().await;
        }
    }

    let log = server.workspace.path().join("services.log");
    let command =
        server.workspace.command(&[&watch(&["service", "list"])[..], &["-o", "json"]].concat());
    let _child = Child::start("ironmesh service list", &mut Command::from(command), &log);
    let counts = async |last: usize| {
        eventually("a page with so many services", async || {
            let text = fs_err::read_to_string(&log).unwrap();
            let lines: Vec<_> = text.lines().map(str::to_owned).collect();
            let pages: Result<Vec<Value>, _> =
                lines.iter().map(|line| serde_json::from_str(line)).collect();
            let count = |page: &Value| page["services"].as_array().map_or(0, Vec::len);
            match pages {
                Ok(pages) if pages.last().is_some_and(|page| count(page) == last) => Ok(lines),
                _ => Err(text),
            }
        })
        .await
    };
    counts(2).await;
    server.workspace.write("policy/cart.toml", &STORE.replace("store", "cart"));
    let lines = counts(3).await;
    assert!(lines.windows(2).all(|pair| pair[0] != pair[1]), "{lines:#?}");
}
