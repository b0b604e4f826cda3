//! The picture: who asks whom for what, and what comes of it.

use std::collections::VecDeque;
use std::fmt::Write as _;

use super::events::{Event, REFUSED, UNREADABLE};
use super::facts::{Facts, Ground, Habit, percent, shares, silence};
use super::hints::{self, hints};
use super::lines::time;
use super::picture::{Colour, Line};
use crate::tally::{Count, SHARES_OF, Verdict};

/// The room that a terminal has.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    pub(super) columns: usize,
    pub(super) lines: usize,
}

/// The picture for this room, one line less than there are; none where there is too little.
///
/// What has no place is left out: first the events, then the hints. A refusal comes before both.
pub(super) fn table(
    ground: &Ground,
    facts: &Facts,
    events: &VecDeque<Event>,
    size: Size,
) -> Option<Vec<Line>> {
    if size.columns < LEAST.columns || size.lines < LEAST.lines {
        return None;
    }
    let mut picture = head(ground, facts, size.columns);
    // The cursor needs a line of its own.
    let most = size.lines - 1;
    if picture.len() > most {
        return None;
    }
    // Each section comes after an empty line.
    let room = |picture: &[Line]| most.saturating_sub(picture.len() + 1);
    let add = |picture: &mut Vec<Line>, section: Vec<Line>| {
        picture.push(Line::default());
        picture.extend(section);
    };
    if facts.policy.stale_since.is_some() && room(&picture) > 1 {
        let section = refusal(facts, room(&picture));
        add(&mut picture, section);
    }
    if let Some(section) = suggestions(ground, size.columns)
        && section.len() <= room(&picture)
    {
        add(&mut picture, section);
    }
    if !events.is_empty() && room(&picture) > 1 {
        let section = latest(events, room(&picture));
        add(&mut picture, section);
    }
    Some(picture)
}

/// What is always there.
fn head(ground: &Ground, facts: &Facts, columns: usize) -> Vec<Line> {
    let revision = facts.policy.revision.as_deref().unwrap_or("none yet");
    // What it said last may be true no more.
    let (colour, state) = match facts.silent {
        Some(seconds) => (Colour::Bad, silence(seconds)),
        None => (Colour::Plain, format!("policy {revision} in force")),
    };
    let mut head = vec![
        Line::of(Colour::Strong, "ironmesh demo")
            .and(Colour::Plain, ": ")
            .and(colour, state)
            .and(Colour::Plain, format!("; Ctrl-C ends it; Envoy {}", ground.envoy)),
    ];
    // The one thing that must be read whole.
    head.extend(whole(&format!("edit it in {}", ground.policy_folder.display()), columns));
    let wide = columns >= WIDE;
    let mut titles =
        format!("{:<13}{:<14}{:<13}{:<8}{:>5}", "FROM", "TO", "REQUEST", "NOW", "PER S");
    if wide {
        // Writing to a string does not fail.
        let _ = write!(titles, "{:>8}{:>8}{:>8}", "OK", "DENIED", "FAILED");
    }
    head.push(Line::of(Colour::Faint, titles));
    head.extend(facts.rows.iter().map(|(habit, count)| row(habit, count, wide)));
    for (name, share) in shares(facts) {
        head.push(
            Line::plain(format!("{name:<13}"))
                .and(Colour::Good, bar(share))
                .and(Colour::Plain, format!(" {:>5}", percent(share)))
                .and(Colour::Faint, format!(" of {} s", SHARES_OF.as_secs())),
        );
    }
    head
}

fn row(habit: &Habit, count: &Count, wide: bool) -> Line {
    let (colour, last) = match count.last {
        Some(last) => (colour(last.verdict()), last.to_string()),
        None => (Colour::Faint, "-".to_owned()),
    };
    let mut numbers = format!("{:>5}", count.per_second);
    if wide {
        let _ = write!(numbers, "{:>8}{:>8}{:>8}", count.ok, count.denied, count.failed);
    }
    Line::plain(format!("{:<13}{:<14}{:<13}", habit.from, habit.to, habit.request))
        .and(colour, format!("{last:<8}"))
        .and(Colour::Plain, numbers)
}

fn colour(verdict: Verdict) -> Colour {
    match verdict {
        Verdict::Ok => Colour::Good,
        Verdict::Denied => Colour::Denied,
        Verdict::Failed => Colour::Bad,
    }
}

/// A share as a bar.
fn bar(share: Option<f64>) -> String {
    let steps = (0_u8..BAR).map(|step| (f64::from(step) + 0.5) / f64::from(BAR));
    steps.map(|step| if share.is_some_and(|share| step < share) { '█' } else { '░' }).collect()
}

/// A text in as many lines as it takes.
fn whole(text: &str, columns: usize) -> Vec<Line> {
    let characters: Vec<char> = text.chars().collect();
    characters
        .chunks(columns.max(1))
        .map(|part| Line::plain(part.iter().collect::<String>()))
        .collect()
}

/// What is wrong with the policy, in at most so many lines.
fn refusal(facts: &Facts, most: usize) -> Vec<Line> {
    let title = if facts.policy.is_refused() { REFUSED } else { UNREADABLE };
    let title = Line::of(Colour::Bad, title);
    let drawn = facts.policy.drawn.trim_end().lines().map(|line| Line::plain(format!("  {line}")));
    [title].into_iter().chain(drawn).take(most).collect()
}

/// What one can try; none where a command would not fit whole.
fn suggestions(ground: &Ground, columns: usize) -> Option<Vec<Line>> {
    let title = Line::of(Colour::Strong, "Try it, in another terminal");
    let lines: Vec<String> =
        hints(&ground.policy_folder).iter().map(|hint| hints::line(hint, columns)).collect();
    let fits = lines.iter().all(|line| line.chars().count() <= columns);
    fits.then(|| [title].into_iter().chain(lines.into_iter().map(Line::plain)).collect())
}

/// The last events, in at most so many lines.
fn latest(events: &VecDeque<Event>, most: usize) -> Vec<Line> {
    let title = Line::of(Colour::Strong, "Lately");
    let skipped = events.len().saturating_sub(most.saturating_sub(1));
    let lines = events.iter().skip(skipped).map(|event| {
        Line::of(Colour::Faint, format!("  {} ", time(&event.at)))
            .and(Colour::Plain, event.what.line())
    });
    [title].into_iter().chain(lines).collect()
}

/// With less there is no picture.
const LEAST: Size = Size { columns: 60, lines: 12 };
/// From here on there is room for the totals.
const WIDE: usize = 80;
const BAR: u8 = 30;

#[cfg(test)]
mod tests {
    use super::super::events::What;
    use super::super::samples::{facts, finding, ground, noon};
    use super::*;

    fn drawn(facts: &Facts, events: usize, columns: usize, lines: usize) -> Option<Vec<String>> {
        let event = |revision: usize| Event {
            at: noon(),
            what: What::InForce { revision: format!("number {revision}") },
        };
        let events: VecDeque<Event> = (0..events).map(event).collect();
        let picture = table(&ground(), facts, &events, Size { columns, lines })?;
        Some(picture.iter().map(|line| line.drawn(columns, false)).collect())
    }

    #[test]
    fn large_terminal_shows_the_whole_table() {
        let picture = drawn(&facts(), 2, 80, 30).unwrap();
        let picture: Vec<&str> = picture.iter().map(|line| line.trim_end()).collect();
        assert_eq!(
            picture.join("\n"),
            r#"ironmesh demo: policy 4b4a36bdada3 in force; Ctrl-C ends it; Envoy 1.40.0
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
  sed -i 's/\["home"\]/["home", "buy"]/' thieves.toml  # let the thief in
  sed -i 's/, "buy"//' thieves.toml                    # take it back
  sed -i 's/"bookbuyer"/"bookbyer"/' buyers.toml       # make a mistake
  sed -i 's/"bookbyer"/"bookbuyer"/' buyers.toml       # mend it

Lately
  12:00:00 policy number 0 in force
  12:00:00 policy number 1 in force"#
        );
    }

    #[test]
    fn silent_control_plane_replaces_the_last_policy_state() {
        let silent = Facts { silent: Some(7), ..facts() };
        let picture = drawn(&silent, 0, 60, 30).unwrap();
        assert!(
            picture[0].starts_with("ironmesh demo: the control plane has not answered for 7 s")
        );
        assert!(!picture[0].contains("in force"));
    }

    #[test]
    fn table_fits_every_terminal_size() {
        let mut refused = facts();
        refused.policy.findings.push(finding());
        refused.policy.stale_since = Some("2026-11-21T12:00:00Z".to_owned());
        refused.policy.drawn = "error: long\n".repeat(12) + &"x".repeat(300);
        for facts in [facts(), refused] {
            for columns in 0..130 {
                for lines in 0..50 {
                    let Some(picture) = drawn(&facts, 60, columns, lines) else {
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
        let picture = drawn(&facts(), 60, 80, 30).unwrap();
        assert!(
            has(&picture, "Try it") && has(&picture, "number 59") && !has(&picture, "number 9 ")
        );
        let picture = drawn(&facts(), 60, 80, 22).unwrap();
        assert!(has(&picture, "Try it") && !has(&picture, "Lately"));
        let picture = drawn(&facts(), 60, 80, 14).unwrap();
        assert!(!has(&picture, "Try it"));
        let mut refused = facts();
        refused.policy.findings.push(finding());
        refused.policy.stale_since = Some("2026-11-21T12:00:00Z".to_owned());
        refused.policy.drawn = "error[IM0201]: no service".to_owned();
        let picture = drawn(&refused, 60, 80, 16).unwrap();
        assert!(has(&picture, REFUSED) && has(&picture, "IM0201") && !has(&picture, "Try it"));
        refused.policy.findings.clear();
        let picture = drawn(&refused, 60, 80, 16).unwrap();
        assert!(has(&picture, UNREADABLE) && !has(&picture, "Try it"));
    }

    #[test]
    fn long_folder_path_wraps_in_a_narrow_terminal() {
        let path = format!("policy  /{}", "long/".repeat(20));
        let lines = whole(&path, 60);
        let joined: String = lines.iter().map(|line| line.drawn(60, false)).collect();
        assert_eq!((joined, lines.len()), (path, 2));
    }
}
