//! Findings that a policy change adds or removes. A finding that only moves, or that lists one more name, is not a new
//! one.

use std::collections::{BTreeMap, BTreeSet};

use ironmesh_api::FindingView;

/// The difference between two lists of findings.
#[derive(Debug, Default)]
pub(super) struct Differing {
    pub(super) new: Vec<FindingView>,
    pub(super) gone: Vec<FindingView>,
    /// Findings that list other names, as they will be.
    pub(super) changed: Vec<FindingView>,
}

/// Compares findings by code and message, and counts equal ones.
pub(super) fn differing(before: &[FindingView], after: &[FindingView]) -> Differing {
    let (before, after) = (by_words(before), by_words(after));
    let mut differing = Differing {
        new: surplus(&after, &before),
        gone: surplus(&before, &after),
        ..Differing::default()
    };
    let Differing { new, gone, changed } = &mut differing;
    new.retain(|finding| {
        let same = gone.iter().position(|old| are_one_list(old, finding));
        if let Some(place) = same {
            gone.remove(place);
            changed.push(finding.clone());
        }
        same.is_none()
    });
    differing
}

type ByWords<'a> = BTreeMap<(&'a str, &'a str), Vec<&'a FindingView>>;

/// Findings by code and message, each location once.
fn by_words(findings: &[FindingView]) -> ByWords<'_> {
    let mut by_words = ByWords::new();
    for finding in findings {
        let same = by_words.entry((&finding.code, &finding.message)).or_default();
        if !same.contains(&finding) {
            same.push(finding);
        }
    }
    by_words
}

/// The findings that `of` has more often than `than`, with those of a new location first.
fn surplus(of: &ByWords<'_>, than: &ByWords<'_>) -> Vec<FindingView> {
    let mut surplus = Vec::new();
    for (words, findings) in of {
        let others = than.get(words).map_or(&[][..], Vec::as_slice);
        let more = findings.len().saturating_sub(others.len());
        let is_elsewhere = |finding: &&&FindingView| !others.contains(*finding);
        let elsewhere = findings.iter().filter(is_elsewhere).take(more);
        surplus.extend(elsewhere.map(|finding| (*finding).clone()));
    }
    surplus
}

/// Whether two findings list names for the same problem, and have one name in common.
fn are_one_list(one: &FindingView, other: &FindingView) -> bool {
    let head = |finding: &'_ FindingView| {
        let head = finding.message.split('`').next().unwrap_or_default();
        head.trim_end().trim_end_matches('s').to_owned()
    };
    let is_list = |finding: &FindingView| finding.message.contains("`, `");
    let names = |finding: &FindingView| -> BTreeSet<String> {
        finding.message.split('`').skip(1).step_by(2).map(str::to_owned).collect()
    };
    one.code == other.code
        && (is_list(one) || is_list(other))
        && head(one) == head(other)
        && !names(one).is_disjoint(&names(other))
}

#[cfg(test)]
mod tests {
    use ironmesh_api::PlaceView;

    use super::*;

    fn finding(message: &str, line: u32) -> FindingView {
        let file = Some("a.toml".to_owned());
        FindingView {
            code: "IM0308".to_owned(),
            severity: "warning".to_owned(),
            message: message.to_owned(),
            place: PlaceView { file, line: Some(line), ..PlaceView::default() },
            label: String::new(),
            related: Vec::new(),
            help: None,
            objects: Vec::new(),
            fingerprint: String::new(),
            silenced: None,
        }
    }

    /// The difference, as `+ message:line`.
    fn changes(before: &[(&str, u32)], after: &[(&str, u32)]) -> Vec<String> {
        let all = |all: &[(&str, u32)]| -> Vec<_> {
            all.iter().map(|(message, line)| finding(message, *line)).collect()
        };
        let Differing { new, gone, changed } = differing(&all(before), &all(after));
        let words = |sign: char, all: Vec<FindingView>| {
            let words = move |one: FindingView| {
                format!("{sign} {}:{}", one.message, one.place.line.unwrap())
            };
            all.into_iter().map(words).collect::<Vec<_>>()
        };
        [words('+', new), words('-', gone), words('~', changed)].concat()
    }

    #[test]
    fn findings_that_differ_only_in_location_match_by_count() {
        let (needless, other) = ("this rule is needless", "another");
        assert_eq!(changes(&[(needless, 1)], &[(needless, 7)]), [""; 0], "it has moved");
        assert_eq!(
            changes(&[(needless, 1)], &[(needless, 1), (needless, 7)]),
            ["+ this rule is needless:7"]
        );
        assert_eq!(
            changes(&[(needless, 1), (needless, 7)], &[(needless, 7)]),
            ["- this rule is needless:1"]
        );
        assert_eq!(changes(&[(needless, 1)], &[(needless, 3), (needless, 9)]).len(), 1);
        assert_eq!(
            changes(&[(needless, 1), (needless, 1)], &[(needless, 1), (other, 1)]),
            ["+ another:1"],
            "a finding of two proxies counts once"
        );
    }

    #[test]
    fn changed_name_list_is_a_changed_finding_not_a_new_one() {
        let (one, two) =
            ("no caller may call service `d/a`", "no caller may call services `d/a`, `d/b`");
        let many = "no caller may call services `d/a`, `d/c` and 2 more";
        assert_eq!(changes(&[(one, 1)], &[(two, 1)]), [format!("~ {two}:1")]);
        assert_eq!(changes(&[(two, 1)], &[(many, 2)]), [format!("~ {many}:2")]);
        assert_eq!(changes(&[(two, 1)], &[(one, 1)]), [format!("~ {one}:1")]);
        // A fixed finding and a new one for a different name are two changes.
        let other = "no caller may call service `d/b`";
        assert_eq!(changes(&[(one, 1)], &[(other, 1)]).len(), 2);
        assert_eq!(
            changes(&[(one, 1)], &[("no endpoint serves services `d/a`, `d/b`", 1)]).len(),
            2
        );
    }
}
