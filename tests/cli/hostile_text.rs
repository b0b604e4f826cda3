//! Text that others wrote reaches neither terminal nor log with characters that these obey.

use fs_err as fs;
use ironmesh_tests::eventually;

use crate::command::Place;
use crate::server::Server;

/// A file name that clears the screen, forges a line of the log and turns the reading direction.
const FILE: &str = "policy/a\u{1b}[2J\nERROR forged \u{202e}.toml";

/// Policy with an error in a line that has the same.
const POLICY: &str = "[[service]]\nname = \"store\" # \u{202e}\u{9b}2J\ncolour = \"\u{2066}\"\n";

fn assert_harmless(text: &str) {
    let hidden = ['\u{1b}', '\r', '\u{9b}', '\u{202e}', '\u{2066}'];
    assert!(!text.contains(hidden), "{text:?}");
    assert!(text.lines().all(|line| !line.starts_with("ERROR forged")), "{text:?}");
    assert!(text.contains("\\u001b[2J"), "{text:?}");
}

#[test]
fn hostile_file_name_is_escaped_in_what_policy_check_prints() {
    let Some(place) = Place::open() else { return };
    place.write(FILE, POLICY);
    for output in ["text", "json"] {
        let run = place.run(&["--output", output, "policy", "check", "policy"]);
        assert_eq!(run.code, 3, "{run:?}");
        assert_harmless(&(run.stdout.clone() + &run.stderr));
    }
}

#[tokio::test]
async fn hostile_file_name_is_escaped_in_the_log() {
    let Some(server) = Server::open("") else { return };
    server.place.write("policy/good.toml", "[[service]]\nname = \"store\"\n");
    let _running = server.start().await;
    server.place.write(FILE, POLICY);
    let log = server.place.path().join("serve.log");
    eventually("the finding in the log", async || {
        let text = fs::read_to_string(&log).unwrap();
        if text.contains("IM0102") && text.contains("forged") { Ok(()) } else { Err(text) }
    })
    .await;
    assert_harmless(&fs::read_to_string(&log).unwrap());
}
