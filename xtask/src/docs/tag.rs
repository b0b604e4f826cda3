//! The tag of a test: the rules that it covers, at the beginning of its doc comment.
//!
//! `/// Rule 5, R19, A42: text` or `/// R8 (delta).`: a list of rules, then possibly a note, then
//! a colon or a full stop, all on the first line.

use anyhow::{Context, bail};

/// The kinds of rules with their pages: the rules of xDS, the invariants of the design, the cases of
/// hostile clients, the rules of SMI, and the scenarios of Open Service Mesh.
const KINDS: [&str; 6] = ["rule ", "R", INVARIANT, "A", "SMI ", "OSM "];

/// The invariants of the design, of which no page has a table of tests.
const INVARIANT: &str = "invariant ";

/// The rules that a test covers.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Tag {
    pub(super) rules: Vec<Rule>,
    pub(super) note: Option<Note>,
}

/// The number of a rule, as in `rule 5`, `R19` or `SMI 3`.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct Rule(String);

/// What the place of a test does not show.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Note {
    /// The test covers the delta variant only.
    Delta,
    /// The test covers the state-of-the-world variant only.
    Sotw,
    /// The test verifies that a different client is served meanwhile.
    Bystander,
}

impl Tag {
    /// The tag in the first line of a doc comment, if any.
    ///
    /// A line that begins with a rule and punctuation must be a tag, so that no rule is missed.
    pub(super) fn parse(line: &str) -> anyhow::Result<Option<Self>> {
        let first = line.split([',', ';', ':', '.', '(']).next().unwrap_or_default();
        if Rule::parse(first.trim_end()).is_none() || line == first {
            return Ok(None);
        }
        let (list, _) = line.split_once([':', '.']).with_context(|| problem(line))?;
        let (rules, note) = match list.strip_suffix(')').and_then(|list| list.split_once(" (")) {
            Some((rules, "delta")) => (rules, Some(Note::Delta)),
            Some((rules, "sotw")) => (rules, Some(Note::Sotw)),
            Some((rules, "bystander")) => (rules, Some(Note::Bystander)),
            Some((_, note)) => bail!("the note `{note}` is unknown: {line}"),
            None => (list, None),
        };
        let rules: Option<_> = rules.split(", ").map(Rule::parse).collect();
        Ok(Some(Self { rules: rules.with_context(|| problem(line))?, note }))
    }
}

impl Rule {
    /// The rule of this number, if it is one. A sentence may begin with it.
    pub(super) fn parse(text: &str) -> Option<Self> {
        let (kind, number) = text.split_at(text.find(|c: char| c.is_ascii_digit())?);
        let kind = match kind {
            "Rule " => "rule ",
            "Invariant " => INVARIANT,
            kind => kind,
        };
        let number: u32 = number.parse().ok()?;
        KINDS.contains(&kind).then(|| Self(format!("{kind}{number}")))
    }

    /// Whether a page lists the tests of the rule.
    pub(super) fn has_page(&self) -> bool {
        !self.0.starts_with(INVARIANT)
    }

    pub(super) fn as_str(&self) -> &str {
        &self.0
    }
}

fn problem(line: &str) -> String {
    format!("expected rules with `, ` between them, then `:` or `.`, on one line: {line}")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tag(rules: &[&str], note: Option<Note>) -> Tag {
        Tag { rules: rules.iter().map(|rule| Rule((*rule).to_owned())).collect(), note }
    }

    #[test]
    fn tag_ends_with_a_colon_or_a_full_stop() {
        let parse = |line| Tag::parse(line).unwrap().unwrap();
        assert_eq!(parse("R53."), tag(&["R53"], None));
        assert_eq!(
            parse("Rule 5, R19, A42: the last. And more."),
            tag(&["rule 5", "R19", "A42"], None)
        );
        assert_eq!(
            parse("SMI 3, OSM 4 (delta): text"),
            tag(&["SMI 3", "OSM 4"], Some(Note::Delta))
        );
        assert_eq!(parse("A8 (bystander)."), tag(&["A8"], Some(Note::Bystander)));
        assert_eq!(parse("Invariant 4."), tag(&["invariant 4"], None));
    }

    #[test]
    fn sentence_is_no_tag() {
        for line in
            ["Reads R5.", "Rule 2 covers only clusters.", "R30 is about a wildcard", "R", ""]
        {
            assert_eq!(Tag::parse(line).unwrap(), None, "{line}");
        }
    }

    #[test]
    fn malformed_tag_is_an_error() {
        for line in
            ["R5, as far as possible.", "R5, R6", "Rule 7 (a), R6.", "R5; R6.", "R5 (both)."]
        {
            Tag::parse(line).unwrap_err();
        }
    }
}
