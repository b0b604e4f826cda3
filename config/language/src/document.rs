//! A document: one file of policy or settings as text, with an index of its lines.
//!
//! The index makes spots cheap: a policy of thousands of rules needs tens of thousands of them.

use std::ops::Range;
use std::path::Path;
use std::sync::Arc;

use ironmesh_catalog::Spot;

/// One file of policy or settings.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Document {
    /// The path relative to the policy folder, with `/` between its parts.
    pub path: Arc<str>,
    /// The whole text.
    pub text: Arc<str>,
}

impl Document {
    /// The document of that path and text.
    pub fn new(path: impl Into<Arc<str>>, text: impl Into<Arc<str>>) -> Self {
        Self { path: path.into(), text: text.into() }
    }

    /// Whether its file name has an extension of YAML; otherwise the document is TOML.
    pub(crate) fn is_yaml(&self) -> bool {
        let end = Path::new(&*self.path).extension();
        end.is_some_and(|end| YAML_EXTENSIONS.iter().any(|known| end == *known))
    }
}

/// The file name extensions of YAML documents.
pub const YAML_EXTENSIONS: [&str; 2] = ["yaml", "yml"];

/// A document with an index of its lines, and of long ones within.
#[derive(Debug)]
pub(crate) struct Source<'a> {
    document: &'a Document,
    marks: Vec<Mark>,
    is_yaml: bool,
}

/// A position in the text with its line and column.
#[derive(Debug)]
struct Mark {
    at: usize,
    line: u32,
    column: u32,
}

/// The most bytes between two marks, except for a character at the end.
const MARKED: usize = 1024;

impl<'a> Source<'a> {
    /// Indexes the lines of `document`.
    pub(crate) fn new(document: &'a Document) -> Self {
        let mut mark = Mark { at: 0, line: 1, column: 1 };
        let mut marks = Vec::new();
        for line in document.text.split_inclusive('\n') {
            let next = Mark { at: mark.at + line.len(), line: mark.line + 1, column: 1 };
            let mut rest = line;
            while rest.len() > MARKED {
                let end = (MARKED..=rest.len()).find(|at| rest.is_char_boundary(*at));
                let (part, after) = rest.split_at(end.unwrap_or(rest.len()));
                let after_part = mark.after(part);
                marks.push(std::mem::replace(&mut mark, after_part));
                rest = after;
            }
            marks.push(std::mem::replace(&mut mark, next));
        }
        // (The last mark follows the last line, if that line has an end.)
        if document.text.is_empty() || document.text.ends_with('\n') {
            marks.push(mark);
        }
        Self { document, marks, is_yaml: document.is_yaml() }
    }

    /// The index of a document that is read as YAML, whatever its name.
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

    /// The spot of `bytes`: equal to that of [`Spot::new`], without reading the text up to there.
    pub(crate) fn spot(&self, bytes: Range<usize>) -> Spot {
        let (length, end) = (self.text().len(), bytes.end);
        let start = bytes.start.min(length);
        let end = end.clamp(start, length);
        let (line, column) = self.line_and_column(start);
        let (end_line, end_column) = self.line_and_column(end);
        let file = Arc::clone(&self.document.path);
        Spot { file, line, column, bytes: (start, end), end_line, end_column }
    }

    fn line_and_column(&self, at: usize) -> (u32, u32) {
        let marked = self.marks.partition_point(|mark| mark.at <= at);
        let start_of_all = Mark { at: 0, line: 1, column: 1 };
        let mark = self.marks.get(marked.saturating_sub(1)).unwrap_or(&start_of_all);
        let Mark { line, column, .. } = mark.after(self.text().get(mark.at..at).unwrap_or(""));
        (line, column)
    }
}

impl Mark {
    /// The position after `part`, which begins at this mark and stays in its line.
    fn after(&self, part: &str) -> Self {
        let characters = u32::try_from(part.chars().count()).unwrap_or(u32::MAX);
        let column = self.column.saturating_add(characters);
        Self { at: self.at + part.len(), line: self.line, column }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn line_index_spots_equal_those_of_the_catalog() {
        let long = "lüng".repeat(MARKED);
        for text in ["first\nsäcond\n\nlast", "", "\n", "a\n", &format!("{long}\nb{long}{long}\n")]
        {
            let document = Document::new("a.toml", text);
            let source = Source::new(&document);
            let text = &document.text;
            let is_whole = |at: &usize| text.is_char_boundary((*at).min(text.len()));
            let steps = if text.len() > MARKED { 37 } else { 1 };
            for start in (0..=text.len() + 2).step_by(steps).filter(is_whole) {
                let end = (start + 1..=text.len() + 4).find(is_whole).unwrap();
                let expected = Spot::new(&document.path, text, start..end);
                assert_eq!(source.spot(start..end), expected);
            }
        }
    }
}
