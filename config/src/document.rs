//! A document: one file of the user's as text. Spots in it are found by an index of its lines, since
//! a policy of thousands of rules asks for tens of thousands of spots.

use std::ops::Range;
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
}

/// A document with an index of its lines.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    document: &'a Document,
    line_starts: Vec<usize>,
}

impl<'a> Source<'a> {
    /// Indexes the lines of `document`.
    pub(crate) fn new(document: &'a Document) -> Self {
        let newlines = document.text.match_indices('\n').map(|(at, _)| at + 1);
        Self { document, line_starts: std::iter::once(0).chain(newlines).collect() }
    }

    /// The text.
    pub(crate) fn text(&self) -> &'a str {
        &self.document.text
    }

    /// The spot of `bytes`; the same as [`Spot::new`] says, without reading the text up to there.
    pub(crate) fn spot(&self, bytes: Range<usize>) -> Spot {
        let length = self.text().len();
        let start = bytes.start.min(length);
        let end = bytes.end.clamp(start, length);
        let (line, column) = self.line_and_column(start);
        let (end_line, end_column) = self.line_and_column(end);
        let file = Arc::clone(&self.document.path);
        Spot { file, line, column, bytes: (start, end), end_line, end_column }
    }

    fn line_and_column(&self, at: usize) -> (u32, u32) {
        let line = self.line_starts.partition_point(|line_start| *line_start <= at);
        let line_start = self.line_starts.get(line.saturating_sub(1)).copied().unwrap_or(0);
        let before = self.text().get(line_start..at).unwrap_or("");
        let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
        (count(line), count(before.chars().count() + 1))
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
        let is_boundary = |at: &usize| text.is_char_boundary((*at).min(text.len()));
        let boundaries: Vec<usize> = (0..=text.len() + 2).filter(is_boundary).collect();
        for (start, end) in boundaries.iter().zip(&boundaries[1..]) {
            let expected = Spot::new(&document.path, text, *start..*end);
            assert_eq!(source.spot(*start..*end), expected);
        }
    }
}
