//! The picture: a table of repeated calls and their outcomes.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::events::{Event, POLICY_REJECTED, POLICY_UNREADABLE};
use super::facts::{DemoSetup, Facts, RepeatedCall, percent, shares, silence};
use super::hints::{self, hints};
use super::lines::time;
use super::picture::{Color, Line};
use crate::tally::{Count, SHARES_OF, Verdict};

/// The size of a terminal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) lines: usize,
}

/// The picture for a terminal of this size, with one line less than it has; `None` if the terminal is too small.
///
/// Sections that do not fit are dropped: first the events, then the hints. A rejection has priority over both.
pub(super) fn table(
    setup: &DemoSetup,
    facts: &Facts,
    events: &VecDeque<Event>,
    size: Size,
) -> Option<Vec<Line>> {
    if size.columns < LEAST.columns || size.lines < LEAST.lines {
        return None;
    }
    let mut picture = head(setup, facts, size.columns);
    // The cursor needs its own line.
    let most = size.lines - 1;
    if picture.len() > most {
        return None;
    }
    // An empty line precedes each section.
    let lines_left = |picture: &[Line]| most.saturating_sub(picture.len() + 1);
    let add = |picture: &mut Vec<Line>, section: Vec<Line>| {
        picture.push(Line::default());
        picture.extend(section);
    };
    if facts.policy.stale_since.is_some() && lines_left(&picture) > 1 {
        let section = rejection(facts, lines_left(&picture));
        add(&mut picture, section);
    }
    if let Some(section) = suggestions(setup, size.columns)
        && section.len() <= lines_left(&picture)
    {
        add(&mut picture, section);
    }
    if !events.is_empty() && lines_left(&picture) > 1 {
        let section = latest(events, lines_left(&picture));
        add(&mut picture, section);
    }
    Some(picture)
}

/// The part that is always shown.
fn head(setup: &DemoSetup, facts: &Facts, columns: usize) -> Vec<Line> {
    let revision = facts.policy.revision.as_deref().unwrap_or("none yet");
    // Without a recent answer the last policy state may be outdated.
    let (color, state) = match facts.silent {
        Some(seconds) => (Color::Bad, silence(seconds)),
        None => (Color::Plain, format!("policy {revision} is active")),
    };
    let mut head = vec![
        Line::of(Color::Strong, "ironmesh demo")
            .and(Color::Plain, ": ")
            .and(color, state)
            .and(Color::Plain, format!("; Ctrl-C ends it; Envoy {}", setup.envoy)),
    ];
    // The path must be readable in full, so it wraps.
    head.extend(whole(&format!("edit it in {}", setup.policy_folder.display()), columns));
    let wide = columns >= WIDE;
    let mut titles =
        format!("{:<13}{:<14}{:<13}{:<8}{:>5}", "FROM", "TO", "REQUEST", "NOW", "PER S");
    if wide {
        // Writing to a string does not fail.
        let _ = write!(titles, "{:>8}{:>8}{:>8}", "OK", "DENIED", "FAILED");
    }
    head.push(Line::of(Color::Faint, titles));
    head.extend(facts.rows.iter().map(|(call, count)| row(call, count, wide)));
    for (name, share) in shares(facts) {
        head.push(
            Line::plain(format!("{name:<13}"))
                .and(Color::Good, bar(share))
                .and(Color::Plain, format!(" {:>5}", percent(share)))
                .and(Color::Faint, format!(" of {} s", SHARES_OF.as_secs())),
        );
    }
    head
}

fn row(call: &RepeatedCall, count: &Count, wide: bool) -> Line {
    let (color, last) = match count.last {
        Some(last) => (color(last.verdict()), last.to_string()),
        None => (Color::Faint, "-".to_owned()),
    };
    let mut numbers = format!("{:>5}", count.per_second);
    if wide {
        let _ = write!(numbers, "{:>8}{:>8}{:>8}", count.ok, count.denied, count.failed);
    }
    Line::plain(format!("{:<13}{:<14}{:<13}", call.from, call.to, call.request))
        .and(color, format!("{last:<8}"))
        .and(Color::Plain, numbers)
}

fn color(verdict: Verdict) -> Color {
    match verdict {
        Verdict::Ok => Color::Good,
        Verdict::Denied => Color::Denied,
        Verdict::Failed => Color::Bad,
    }
}

/// A share as a bar.
fn bar(share: Option<f64>) -> String {
    let steps = (0_u8..BAR).map(|step| (f64::from(step) + 0.5) / f64::from(BAR));
    steps.map(|step| if share.is_some_and(|share| step < share) { '█' } else { '░' }).collect()
}

/// A text wrapped to as many lines as it needs.
fn whole(text: &str, columns: usize) -> Vec<Line> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(columns.max(1))
        .map(|part| Line::plain(part.iter().collect::<String>()))
        .collect()
}

/// The problem of the policy, in at most `most` lines.
fn rejection(facts: &Facts, most: usize) -> Vec<Line> {
    let title = if facts.policy.is_rejected() { POLICY_REJECTED } else { POLICY_UNREADABLE };
    let title = Line::of(Color::Bad, title);
    let rendered =
        facts.policy.rendered.trim_end().lines().map(|line| Line::plain(format!("  {line}")));
    [title].into_iter().chain(rendered).take(most).collect()
}

/// The hints; `None` if a command does not fit the width.
fn suggestions(setup: &DemoSetup, columns: usize) -> Option<Vec<Line>> {
    let title = Line::of(Color::Strong, "Try it, in another terminal");
    let lines: Vec<String> =
        hints(&setup.policy_folder).iter().map(|hint| hints::line(hint, columns)).collect();
    let fits = lines.iter().all(|line| line.chars().count() <= columns);
    fits.then(|| [title].into_iter().chain(lines.into_iter().map(Line::plain)).collect())
}

/// The last events, in at most `most` lines.
fn latest(events: &VecDeque<Event>, most: usize) -> Vec<Line> {
    let title = Line::of(Color::Strong, "Recent events");
    let skipped = events.len().saturating_sub(most.saturating_sub(1));
    let lines = events.iter().skip(skipped).map(|event| {
        Line::of(Color::Faint, format!("  {} ", time(&event.at)))
            .and(Color::Plain, event.what.line())
    });
    [title].into_iter().chain(lines).collect()
}

/// The smallest terminal with a picture.
const LEAST: Size = Size { columns: 60, lines: 12 };
/// The least width with columns for totals.
const WIDE: usize = 80;
const BAR: u8 = 30;

#[cfg(test)]
mod tests {
    use super::super::events::EventKind;
    use super::super::samples::{facts, finding, noon, setup};
    use super::*;

    fn rendered(facts: &Facts, events: usize, columns: usize, lines: usize) -> Option<Vec<String>> {
        let event = |revision: usize| Event {
            at: noon(),
            what: EventKind::PolicyActive { revision: format!("number {revision}") },
        };
        let events: VecDeque<Event> = (0..events).map(event).collect();
        let picture = table(&setup(), facts, &events, Size { columns, lines })?;
        Some(picture.iter().map(|line| line.rendered(columns, false)).collect())
    }

    #[test]
    fn large_terminal_shows_the_whole_table() {
        let picture = rendered(&facts(), 2, 80, 30).unwrap();
        let picture: Vec<&str> = picture.iter().map(|line| line.trim_end()).collect();
        assert_eq!(
            picture.join("\n"),
            r#"ironmesh demo: policy 4b4a36bdada3 is active; Ctrl-C ends it; Envoy 1.40.0
edit it in /tmp/ironmesh-demo-abcdef/policy
FROM         TO            REQUEST      NOW     PER S      OK  DENIED  FAILED
bookbuyer    bookstore     GET /books/N 200         5     500       0       0
bookthief    bookstore     GET /        200         5      50       0       0
bookthief    bookstore     GET /books/1 403         5       0      50       0
bookthief    bookwarehouse TCP connect  refused     5       0       9       0
bookstore-v1 bookwarehouse TCP sale     ok          5     450       0       0
bookstore-v2 bookwarehouse TCP sale     ok          5      50       0       0
bookstore-v1 ███████████████████████████░░░  90 % of 2 s
bookstore-v2 ███░░░░░░░░░░░░░░░░░░░░░░░░░░░  10 % of 2 s

Try it, in another terminal
  cd /tmp/ironmesh-demo-abcdef/policy
  sed -i 's/weight = [0-9]*/weight = 50/' split.toml   # half to each
  sed -i 's/\["home"\]/["home", "buy"]/' thieves.toml  # allow the thief
  sed -i 's/, "buy"//' thieves.toml                    # deny the thief again
  sed -i 's/"bookbuyer"/"bookbyer"/' buyers.toml       # make a mistake
  sed -i 's/"bookbyer"/"bookbuyer"/' buyers.toml       # fix the mistake

Recent events
  12:00:00 policy number 0 is active
  12:00:00 policy number 1 is active"#
        );
    }

    #[test]
    fn silent_control_plane_replaces_the_last_policy_state() {
        let silent = Facts { silent: Some(7), ..facts() };
        let picture = rendered(&silent, 0, 60, 30).unwrap();
        assert!(
            picture[0].starts_with("ironmesh demo: the control plane has not answered for 7 s")
        );
        assert!(!picture[0].contains("is active"));
    }

    #[test]
    fn table_fits_every_terminal_size() {
        let mut rejected = facts();
        rejected.policy.findings.push(finding());
        rejected.policy.stale_since = Some("2026-11-21T12:00:00Z".to_owned());
        rejected.policy.rendered = "error: long\n".repeat(12) + &"x".repeat(300);
        for facts in [facts(), rejected] {
            for columns in 0..130 {
                for lines in 0..50 {
                    let Some(picture) = rendered(&facts, 60, columns, lines) else {
                        assert!(columns < 60 || lines < 12, "{columns}×{lines}");
                        continue;
                    };
                    assert!(picture.len() < lines, "{columns}×{lines}");
                    let widest = picture.iter().map(|line| line.chars().count()).max().unwrap();
                    assert!(widest <= columns, "{columns}×{lines}");
                }
            }
        }
    }

    #[test]
    fn small_terminal_drops_events_then_hints_but_no_rejection() {
        let has = |picture: &[String], text: &str| picture.iter().any(|line| line.contains(text));
        let picture = rendered(&facts(), 60, 80, 30).unwrap();
        assert!(
            has(&picture, "Try it") && has(&picture, "number 59") && !has(&picture, "number 9 ")
        );
        let picture = rendered(&facts(), 60, 80, 22).unwrap();
        assert!(has(&picture, "Try it") && !has(&picture, "Recent events"));
        let picture = rendered(&facts(), 60, 80, 14).unwrap();
        assert!(!has(&picture, "Try it"));
        let mut rejected = facts();
        rejected.policy.findings.push(finding());
        rejected.policy.stale_since = Some("2026-11-21T12:00:00Z".to_owned());
        rejected.policy.rendered = "error[IM0201]: no service".to_owned();
        let picture = rendered(&rejected, 60, 80, 16).unwrap();
        assert!(
            has(&picture, POLICY_REJECTED) && has(&picture, "IM0201") && !has(&picture, "Try it")
        );
        rejected.policy.findings.clear();
        let picture = rendered(&rejected, 60, 80, 16).unwrap();
        assert!(has(&picture, POLICY_UNREADABLE) && !has(&picture, "Try it"));
    }

    #[test]
    fn long_folder_path_wraps_in_a_narrow_terminal() {
        let path = format!("policy  /{}", "long/".repeat(20));
        let lines = whole(&path, 60);
        let text: String = lines.iter().map(|line| line.rendered(60, false)).collect();
        assert_eq!((text, lines.len()), (path, 2));
    }
}
