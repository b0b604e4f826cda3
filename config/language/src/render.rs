//! The renderer of findings, in the format of compiler messages: the code, the source lines, and the advice.

use std::ops::Range;
use std::sync::Arc;

use annotate_snippets::{
    Annotation, AnnotationKind, Group, Level, Origin, Renderer, Snippet, normalize_untrusted_str,
};
use ironmesh_catalog::text::escape_line;
use ironmesh_catalog::{Finding, Severity, Spot};

use crate::document::Document;

#[cfg(test)]
mod tests;

/// The findings as text, separated by empty lines. Findings in `documents` show their lines; others show only
/// the location.
pub fn render(findings: &[Finding], documents: &[Document], color: bool) -> String {
    let renderer = if color { Renderer::styled() } else { Renderer::plain() };
    let mut rendered = String::new();
    for finding in findings {
        if !rendered.is_empty() {
            rendered.push('\n');
        }
        rendered.push_str(&renderer.render(&[group(finding, documents)]));
        rendered.push('\n');
    }
    rendered
}

fn group<'a>(finding: &'a Finding, documents: &'a [Document]) -> Group<'a> {
    let level = match finding.severity {
        Severity::Error => Level::ERROR,
        Severity::Warning => Level::WARNING,
    };
    let title = level.primary_title(finding.message.as_str()).id(finding.code.to_string());
    let mut group = Group::with_title(title);
    if let Some(spot) = &finding.spot {
        let mut marks = vec![Mark { spot, label: &finding.label, kind: AnnotationKind::Primary }];
        let context = AnnotationKind::Context;
        marks.extend(finding.related.iter().map(|(spot, label)| Mark {
            spot,
            label,
            kind: context,
        }));
        // One excerpt per file, that of the finding first.
        while let Some(first) = marks.first() {
            let file = Arc::clone(&first.spot.file);
            let (here, elsewhere): (Vec<_>, Vec<_>) =
                marks.into_iter().partition(|mark| mark.spot.file == file);
            group = excerpt(group, &here, documents);
            marks = elsewhere;
        }
    }
    match &finding.help {
        Some(help) => group.element(Level::HELP.message(normalize_untrusted_str(help))),
        None => group,
    }
}

struct Mark<'a> {
    spot: &'a Spot,
    label: &'a str,
    kind: AnnotationKind,
}

/// Adds the lines of one file that `marks` are on.
fn excerpt<'a>(group: Group<'a>, marks: &[Mark<'a>], documents: &'a [Document]) -> Group<'a> {
    let Some(file) = marks.first().map(|mark| &mark.spot.file) else { return group };
    let Some(document) = documents.iter().find(|document| document.path == *file) else {
        let Some(Mark { spot, .. }) = marks.first() else { return group };
        return group.element(origin(spot));
    };
    // Only the shown lines are rendered: the renderer must not read a whole long file for each of a thousand
    // findings.
    let first_line = marks.iter().map(|mark| mark.spot.line).min().unwrap_or(1);
    let lines = lines_around(&document.text, marks);
    if lines.len() > MOST_BYTES_OF_AN_EXCERPT {
        return match marks {
            // An excerpt of such a line is of no use, and there may be many findings in it.
            [mark] => group.element(origin(mark.spot)),
            // The spots are far from each other.
            several => several.chunks(1).fold(group, |group, one| excerpt(group, one, documents)),
        };
    }
    let text = document.text.get(lines.clone()).unwrap_or("");
    let annotations = marks.iter().map(|mark| {
        let (start, end) = mark.spot.bytes;
        let inside = |at: usize| at.saturating_sub(lines.start).min(text.len());
        let annotation: Annotation<'a> = mark.kind.span(inside(start)..inside(end));
        annotation.label((!mark.label.is_empty()).then_some(mark.label))
    });
    let snippet = Snippet::source(text)
        .line_start(to_usize(first_line))
        .path(escape_line(file))
        .annotations(annotations);
    group.element(snippet)
}

/// The location of a spot, without its text.
fn origin(spot: &Spot) -> Origin<'_> {
    Origin::path(escape_line(&spot.file))
        .line(to_usize(spot.line))
        .char_column(to_usize(spot.column))
}

/// The largest excerpt that is shown.
const MOST_BYTES_OF_AN_EXCERPT: usize = 8192;

fn to_usize(number: u32) -> usize {
    usize::try_from(number).unwrap_or(usize::MAX)
}

/// The bytes from the beginning of the first line that is marked to the end of the last.
fn lines_around(text: &str, marks: &[Mark<'_>]) -> Range<usize> {
    let start = marks.iter().map(|mark| mark.spot.bytes.0).min().unwrap_or(0);
    let end = marks.iter().map(|mark| mark.spot.bytes.1).max().unwrap_or(start);
    let start = text.get(..start).and_then(|before| before.rfind('\n')).map_or(0, |at| at + 1);
    let end = text.get(end..).and_then(|rest| rest.find('\n')).map_or(text.len(), |at| end + at);
    start..end
}
