//! A demo on a terminal: a picture if it fits, lines otherwise.

use crate::terminal::{Terminal, end_of};
use crate::workspace::Workspace;

/// The rows with their results before any edit.
const ROWS: [(&str, &str); 6] = [
    ("bookbuyer    bookstore     GET /books/N ", "200 "),
    ("bookthief    bookstore     GET /        ", "200 "),
    ("bookthief    bookstore     GET /books/1 ", "403 "),
    ("bookthief    bookwarehouse TCP connect  ", "refused "),
    ("bookstore-v1 bookwarehouse TCP sale     ", "ok "),
    ("bookstore-v2 bookwarehouse TCP sale     ", "ok "),
];

/// The last whole picture in a terminal's output, without colors.
fn picture(text: &str) -> Option<Vec<String>> {
    // This clears the screen below a picture, and so ends it.
    let (before, _) = text.rsplit_once("\x1b[J")?;
    let last = before.rsplit("\x1b[J").next()?;
    let from =
        last.rfind("ironmesh demo: policy ").or_else(|| last.find("\x1b[1mironmesh demo"))?;
    Some(without_escapes(&last[from..]).lines().map(|line| line.trim_end().to_owned()).collect())
}

/// A text without terminal escape sequences.
fn without_escapes(text: &str) -> String {
    let mut parts = text.split("\x1b[");
    let mut plain = parts.next().unwrap_or_default().to_owned();
    for part in parts {
        let end = part.find(|c: char| c.is_ascii_alphabetic()).map_or(part.len(), |end| end + 1);
        plain.push_str(&part[end..]);
    }
    plain
}

/// Whether all rows have their expected results, with both shares.
fn is_whole(picture: &[String]) -> bool {
    let has = |start: &str, then: &str| {
        picture
            .iter()
            .any(|line| line.strip_prefix(start).is_some_and(|rest| rest.starts_with(then)))
    };
    let share = |name: &str| {
        picture
            .iter()
            .any(|line| line.starts_with(name) && line.contains('█') && line.contains('%'))
    };
    ROWS.iter().all(|(row, outcome)| has(row, outcome))
        && share("bookstore-v1 ")
        && share("bookstore-v2 ")
}

#[tokio::test]
async fn terminal_size_selects_picture_or_line_output() {
    let Some(workspace) = Workspace::open().await else { return };
    let (mut terminal, mut process) = Terminal::open(&workspace, 100, 40);
    let whole = |text: &str| picture(text).filter(|picture| is_whole(picture));
    let seen = terminal.shows("the whole picture", whole).await;
    assert!(seen.len() < 40 && seen.iter().all(|line| line.chars().count() <= 100), "{seen:#?}");
    let folder = format!("edit it in {}", workspace.temporary().display());
    for part in [&folder, "sed -i", "OK  DENIED  FAILED"] {
        assert!(seen.iter().any(|line| line.contains(part)), "no {part:?} in {seen:#?}");
    }

    terminal.resize(40, 8);
    let begin = "policy folder: ";
    let lines = terminal
        .shows("a summary in a line", |text| {
            let lines = &text[text.find(begin)?..];
            lines.contains(" failed; bookstore-v1").then(|| lines.to_owned())
        })
        .await;
    assert!(!lines.contains('\x1b') && !lines.contains('█'), "{lines:?}");

    terminal.resize(100, 40);
    terminal.shows("the picture again", |text| whole(&text[text.find(begin)?..])).await;
    // As typed, for the whole foreground group.
    terminal.enter(b"\x03");
    let status = terminal.end_of(&mut process).await;
    let text = terminal.text();
    assert!(status.success(), "{status}\n{text}");
    workspace.assert_nothing_left();
    // The last picture stays whole, and later messages follow it.
    let (_, last) = text.rsplit_once("^C").unwrap();
    assert!(last.trim().starts_with("ironmesh demo: all programs are ended"), "{last:?}");
    // No alternate screen and no hidden cursor, which a SIGKILL would leave.
    assert!(!text.contains("\x1b[?"), "{text:?}");
}

#[tokio::test]
async fn closing_the_terminal_ends_the_demo() {
    let Some(workspace) = Workspace::open().await else { return };
    let (mut terminal, mut process) = Terminal::open(&workspace, 100, 40);
    terminal.shows("a picture", picture).await;
    drop(terminal);
    let status = end_of(&mut process).await;
    assert!(status.success(), "{status}");
    workspace.assert_nothing_left();
}
