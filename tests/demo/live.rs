//! A live demo that writes to a file, and its reports of edits.

use std::path::{Path, PathBuf};

use fs_err as fs;
use ironmesh_tests::eventually;
use ironmesh_tests::process::Child;
use rustix::process::{Pid, Signal, kill_process};
use serde_json::Value;
use tokio::process::Command;

use crate::workspace::Workspace;

/// A running demo.
#[derive(Debug)]
pub(crate) struct Demo {
    pub(crate) child: Child,
    log: PathBuf,
}

/// The first event of a demo with `--output json`.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Started {
    pub(crate) policy_folder: PathBuf,
    /// The first three parts of all its addresses.
    pub(crate) network: String,
}

impl Demo {
    pub(crate) fn new(child: Child, log: PathBuf) -> Self {
        Self { child, log }
    }

    /// All output on stdout and stderr.
    pub(crate) fn text(&self) -> String {
        String::from_utf8(fs::read(&self.log).unwrap()).unwrap()
    }

    /// Waits until `find` finds something in the whole output.
    pub(crate) async fn wait_for<T>(&mut self, what: &str, find: impl Fn(&str) -> Option<T>) -> T {
        eventually(what, async || {
            // A demo that has ended may have written it before.
            let is_over = self.child.id().is_none();
            let text = self.text();
            let found = find(&text);
            if found.is_none() && !is_over {
                self.child.assert_running();
            }
            found.ok_or_else(|| format!("\n{text}"))
        })
        .await
    }

    /// Waits for words in the output.
    pub(crate) async fn wait_for_text(&mut self, words: &str) {
        self.wait_for(&format!("`{words}`"), |text| text.contains(words).then_some(())).await;
    }

    /// Waits for an event of a demo with `--output json`.
    async fn event(&mut self, name: &str) -> Value {
        let words = format!(r#""event":"{name}""#);
        let found = |text: &str| text.lines().find(|line| line.contains(&words)).map(str::to_owned);
        let line = self.wait_for(name, found).await;
        serde_json::from_str(&line).unwrap()
    }

    /// Waits until a demo with `--output json` runs.
    pub(crate) async fn started(&mut self) -> Started {
        let is_event = |line: &&str, name: &str| line.contains(&format!(r#""event":"{name}""#));
        let event = self
            .wait_for("the start, and an outcome", |text| {
                text.lines().find(|line| is_event(line, "outcome"))?;
                text.lines().find(|line| is_event(line, "started")).map(str::to_owned)
            })
            .await;
        let event: Value = serde_json::from_str(&event).unwrap();
        let admin = event["admin"].as_str().unwrap();
        Started {
            policy_folder: event["policy_folder"].as_str().unwrap().into(),
            network: admin.trim_start_matches("http://").trim_end_matches(".1:15014").to_owned(),
        }
    }

    /// Sends a signal to the demo alone, and expects a clean end.
    pub(crate) async fn stop_with(&mut self, signal: Signal) {
        self.child.signal(signal);
        let status = self.child.wait().await;
        assert!(status.success(), "{status}\n{}", self.text());
    }
}

/// One summary: calls that succeeded, were denied and failed, and the second version's percentage.
#[derive(Debug, Clone, Copy)]
struct Summary {
    ok: u64,
    denied: u64,
    failed: u64,
    second: u64,
}

impl Summary {
    /// Parses `12:00:00 1050 ok, 59 denied, 0 failed; bookstore-v1 90 %, bookstore-v2 10 %`.
    fn from_line(line: &str) -> Option<Self> {
        let words: Vec<&str> = line.split_whitespace().collect();
        let [_, ok, "ok,", denied, "denied,", failed, "failed;", .., "bookstore-v2", second, "%"] =
            words[..]
        else {
            return None;
        };
        let number = |word: &str| word.parse().ok();
        Some(Self {
            ok: number(ok)?,
            denied: number(denied)?,
            failed: number(failed)?,
            second: number(second)?,
        })
    }
}

/// The first two summaries after the last of these words.
fn summaries_after(text: &str, words: &str) -> Option<[Summary; 2]> {
    let after = &text[text.rfind(words)?..];
    let mut summaries = after.lines().filter_map(Summary::from_line);
    Some([summaries.next()?, summaries.next()?])
}

/// The printed hints.
fn hints(text: &str) -> Vec<String> {
    let reported = text.lines().skip_while(|line| !line.starts_with("try it,")).skip(1);
    reported.take_while(|line| line.starts_with("  ")).map(|line| line.trim().to_owned()).collect()
}

/// Runs one of the hints literally.
async fn follow_hint(hints: &[String], purpose: &str) {
    let (enter, edits) = hints.split_first().unwrap();
    let edit = edits.iter().find(|edit| edit.ends_with(&format!("# {purpose}")));
    let edit = edit.unwrap_or_else(|| panic!("no hint is to {purpose}: {hints:?}"));
    let script = format!("{enter} && {edit}");
    let status = Command::new("sh").args(["-c", &script]).status().await.unwrap();
    assert!(status.success(), "{script}");
}

/// `file:line:` of the first line with `words`.
fn position_of(file: &Path, words: &str) -> String {
    let text = fs::read_to_string(file).unwrap();
    let line = text.lines().position(|line| line.contains(words)).unwrap() + 1;
    format!("{}:{line}:", file.file_name().unwrap().to_str().unwrap())
}

const JSON: [&str; 2] = ["--output", "json"];

#[tokio::test]
async fn live_demo_reports_hint_effects_as_lines_until_ctrl_c() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start(&[]);
    let folder = demo
        .wait_for("the policy folder", |text| {
            let line = text.lines().find_map(|line| line.strip_prefix("policy folder: "))?;
            Some(PathBuf::from(line))
        })
        .await;
    assert!(folder.starts_with(workspace.temporary()), "{}", folder.display());
    demo.wait_for_text("bookbuyer → bookstore GET /books/N: 200\n").await;
    demo.wait_for_text("bookthief → bookstore GET /books/1: 403\n").await;
    demo.wait_for_text("bookthief → bookwarehouse TCP connect: refused\n").await;
    let hints = hints(&demo.text());

    follow_hint(&hints, "half to each").await;
    follow_hint(&hints, "allow the thief").await;
    demo.wait_for_text("bookthief → bookstore GET /books/1: 403 → 200\n").await;
    follow_hint(&hints, "deny the thief again").await;
    demo.wait_for_text("bookthief → bookstore GET /books/1: 200 → 403\n").await;

    follow_hint(&hints, "make a mistake").await;
    let rejected = "the policy is rejected, the previous policy stays active\n";
    demo.wait_for_text(rejected).await;
    demo.wait_for_text("error[IM0201]").await;
    let wrong = position_of(&folder.join("buyers.toml"), "sources = [{ name = \"bookbyer\" }]");
    demo.wait_for_text(&wrong).await;
    let [first, second] =
        demo.wait_for("two summaries", |text| summaries_after(text, rejected)).await;
    assert!(second.ok > first.ok && second.denied > first.denied, "{}", demo.text());
    assert_eq!(second.failed, 0, "{}", demo.text());
    // 2 s at 20 requests a second; with a share of one in ten this happens once in a hundred
    // thousand runs.
    assert!((25..=75).contains(&second.second), "{}", demo.text());
    follow_hint(&hints, "fix the mistake").await;
    demo.wait_for_text("the policy is valid again: ").await;

    demo.stop_with(Signal::INT).await;
    workspace.assert_nothing_left();
    let text = demo.text();
    assert!(!text.contains('\x1b'), "{text:?}");
    let shown = folder.parent().unwrap().display().to_string();
    let end = format!("ironmesh demo: all programs are ended, and {shown} is removed\n");
    assert!(text.ends_with(&end), "{text}");
}

#[tokio::test]
async fn missing_policy_folder_and_its_return_are_reported() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start(&JSON);
    let folder = demo.started().await.policy_folder;
    let aside = folder.with_extension("aside");
    fs::rename(&folder, &aside).unwrap();
    let problem = demo.event("policy_unreadable").await["problem"].clone();
    assert!(problem.as_str().unwrap().contains("there is no policy folder at"), "{problem}");
    fs::rename(&aside, &folder).unwrap();
    demo.event("policy_restored").await;
    demo.stop_with(Signal::INT).await;
    workspace.assert_nothing_left();
}

#[tokio::test]
async fn silent_control_plane_and_its_return_are_reported() {
    let Some(workspace) = Workspace::open().await else { return };
    let mut demo = workspace.start(&JSON);
    demo.started().await;
    let control_plane = workspace.process(&["serve", "ironmesh.toml"]).unwrap();
    let signal = |signal| kill_process(Pid::from_raw(control_plane.id).unwrap(), signal).unwrap();
    signal(Signal::STOP);
    let seconds = demo.event("control_plane_silent").await["seconds"].as_u64().unwrap();
    signal(Signal::CONT);
    assert!(seconds >= 2, "{seconds}");
    demo.event("control_plane_answers").await;
    demo.stop_with(Signal::INT).await;
    workspace.assert_nothing_left();
}
