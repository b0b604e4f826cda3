//! The damage of a syntax error to the rest of its document. The parser recovers, but the recovered text near
//! an error is a guess, so findings about it would mislead.

use std::collections::BTreeSet;
use std::ops::Range;

use ironmesh_catalog::Spot;

/// The parts of a document with a syntax error; a part reaches from one table header to the next.
pub(super) struct Damage(Vec<Range<usize>>);

impl Damage {
    /// The parts of `text` that contain the `errors`.
    pub(super) fn new(text: &str, errors: &[usize]) -> Self {
        let mut parts = Vec::new();
        let mut start = 0;
        let mut at = 0;
        for line in text.split_inclusive('\n') {
            if line.trim_start().starts_with('[') && at > start {
                parts.push(start..at);
                start = at;
            }
            at += line.len();
        }
        // The end of the text belongs to the last part.
        parts.push(start..text.len() + 1);
        // Both are in order: a document may have an error in each of its lines.
        let mut errors = errors.to_vec();
        errors.sort_unstable();
        parts.retain(|part| {
            let next = errors.partition_point(|error| *error < part.start);
            errors.get(next).is_some_and(|error| *error < part.end)
        });
        Self(parts)
    }

    /// Whether the text at `spot` was recovered near a syntax error.
    pub(super) fn covers(&self, spot: &Spot) -> bool {
        let at = spot.bytes.0;
        let part = self.0.partition_point(|part| part.end <= at);
        self.0.get(part).is_some_and(|part| part.contains(&at))
    }
}

/// The names that a document with syntax errors seems to define.
pub(super) fn names(text: &str) -> BTreeSet<String> {
    let value_at = |(at, key): (usize, &str)| {
        let after = text.get(at + key.len()..)?;
        let quoted = after.trim_start().strip_prefix('=')?.trim_start();
        let quote = quoted.chars().next().filter(|c| matches!(c, '"' | '\''))?;
        let inside = quoted.get(1..)?;
        let end = inside.find([quote, '\n'])?;
        inside.get(end..)?.starts_with(quote).then(|| inside.get(..end).map(str::to_owned))?
    };
    let keys = text.match_indices("name").chain(text.match_indices("service_account"));
    keys.filter_map(value_at).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_in_a_broken_document_are_guessed() {
        let text = "{ namespace = , name = \"a\" }\n  service_account='b'\nname = \nport = 1";
        assert_eq!(names(text), ["a".to_owned(), "b".to_owned()].into());
    }

    #[test]
    fn damage_reaches_from_one_table_header_to_the_next() {
        let text = "[[a]]\nx = \n[[b]]\ny = 1\n";
        let damage = Damage::new(text, &[10]);
        assert_eq!(damage.0, [Range { start: 0, end: 11 }]);
        assert_eq!(Damage::new(text, &[text.len()]).0, [Range { start: 11, end: text.len() + 1 }]);
    }
}
