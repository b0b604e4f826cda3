//! A document: one file of the user's as text. Spots in it are found by an index of its lines, since
//! a policy of thousands of rules asks for tens of thousands of spots.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ironmesh_catalog::Spot;

/// One file of the user's.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// Where it is, relative to the policy folder, its parts joined by `/`.
    pub path: Arc<str>,
    /// All that it says.
    pub text: Arc<str>,
}

impl Document {
    /// The document of that path and text.
    pub fn new(path: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// Whether it is YAML, as the end of its name says; else it is TOML.
    pub(crate) fn is_yaml(&self) -> bool {
        let end = Path::new(&*self.path).extension();
        end.is_some_and(|end| YAML_EXTENSIONS.iter().any(|known| end == *known))
    }
}

/// The ends of names of YAML documents.
pub(crate) const YAML_EXTENSIONS: [&str; 2] = ["yaml", "yml"];

/// A document with an index of its lines.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    document: &'a Document,
    line_starts: Vec<usize>,
    is_yaml: bool,
}

impl<'a> Source<'a> {
    /// Indexes the lines of `document`.
    pub(crate) fn new(document: &'a Document) -> Self {
        let newlines = document.text.match_indices('\n').map(|(at, _)| at + 1);
        let line_starts = std::iter::once(0).chain(newlines).collect();
        Self { document, line_starts, is_yaml: document.is_yaml() }
    }

    /// The same of a document that is YAML whatever it is called.
    pub(crate) fn yaml(document: &'a Document) -> Self {
        Self { is_yaml: true, ..Self::new(document) }
    }

    /// The text.
    pub(crate) fn text(&self) -> &'a str {
        &self.document.text
    }

    /// Whether the document is YAML.
    pub(crate) fn is_yaml(&self) -> bool {
        self.is_yaml
    }

    /// The spot of `bytes`; the same as [`Spot::new`] says, without reading the text up to there.
    pub(crate) fn spot(&self, bytes: Range<usize>) -> Spot {
        let text = self.text();
        let start = bytes.start.min(text.len());
        let line = self.line_starts.partition_point(|line_start| *line_start <= start);
        let line_start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = text.get(line_start..start).unwrap_or("");
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        Spot {
            file: Arc::clone(&self.document.path),
            line: count(line),
            column: count(before.chars().count() + 1),
            bytes: (start, bytes.end.clamp(start, text.len())),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_index_of_lines_finds_the_spots_that_the_catalog_would() {
        let document = Document::new("a.toml", "first\nsäcond\n\nlast");
        let source = Source::new(&document);
        let text = &document.text;
        for start in (0..=text.len() + 2).filter(|at| text.is_char_boundary((*at).min(text.len())))
        {
            let expected = Spot::new(&document.path, text, start..start + 1);
            assert_eq!(source.spot(start..start + 1), expected);
        }
    }
}
