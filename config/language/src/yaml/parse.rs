//! The YAML parser: turns text into trees, one for each document.
//!
//! It rejects features of YAML that policy does not need, since only hostile or mistaken input has them:
//! aliases, merge keys, tags, keys that are not strings. Depth, values and findings are bounded.

use std::ops::Range;

use ironmesh_catalog::Finding;
use saphyr_parser::{Event, Parser, ScalarStyle, ScanError, Tag};
use toml::Spanned;
use toml::de::{DeArray, DeTable, DeValue};

use super::positions::Positions;
use super::quantity::{self, Weights};
use super::scalar;
use crate::codes;
use crate::table::Reader;

/// The documents of a YAML text.
#[derive(Debug, Default)]
pub(crate) struct Parsed<'a> {
    /// The documents that could be read, except for empty ones.
    pub(super) documents: Vec<Spanned<DeValue<'a>>>,
    /// Keys without a value, by their spans. They are in no table.
    pub(super) nulls: Vec<Range<usize>>,
    /// Whole numbers in place of the quantities that old splits have as weights.
    pub(super) weights: Weights,
    /// The findings.
    pub(crate) findings: Vec<Finding>,
}

/// The most depth of lists and mappings. No real resource comes near.
const MOST_DEPTH: usize = 32;
/// The most values of one text: about 15,000 traffic targets.
const MOST_VALUES: usize = 500_000;
/// The most findings that are reported; the parser ignores the rest of the text.
const MOST_FINDINGS: usize = 100;

/// Parses the text of `reader`.
pub(crate) fn parse<'a>(reader: &'a Reader<'a>) -> Parsed<'a> {
    let text = reader.text();
    let mut builder = Builder { reader, values: 0, parsed: Parsed::default() };
    let mut base = 0;
    // The parser ends at its first error. It starts again at the next document, so that the errors of all
    // documents are reported.
    while let Err(Stopped { at }) = builder.documents(base) {
        // The error may be on the first line of the next document.
        let from = at.saturating_sub(1);
        let next = text.as_bytes().get(from..).and_then(|rest| find(rest, b"\n---"));
        match next {
            Some(next) if builder.parsed.findings.len() < MOST_FINDINGS => base = from + next + 1,
            _ => break,
        }
    }
    let weights = quantity::weights(&builder.parsed.documents);
    Parsed { weights, ..builder.parsed }
}

fn find(text: &[u8], wanted: &[u8]) -> Option<usize> {
    text.windows(wanted.len()).position(|window| window == wanted)
}

/// The parser cannot continue after this byte, and has reported the reason.
struct Stopped {
    at: usize,
}

struct Builder<'a> {
    reader: &'a Reader<'a>,
    values: usize,
    parsed: Parsed<'a>,
}

/// An incomplete list or mapping.
enum Frame<'a> {
    List(Range<usize>, DeArray<'a>),
    Mapping(Range<usize>, DeTable<'a>, Option<YamlKey<'a>>),
}

type YamlKey<'a> = Spanned<std::borrow::Cow<'a, str>>;

/// A parsed node.
enum Node<'a> {
    Value(Spanned<DeValue<'a>>),
    Null(Range<usize>),
    /// A value that is rejected.
    Rejected,
}

/// One document while it is read.
#[derive(Default)]
struct Open<'a> {
    frames: Vec<Frame<'a>>,
    is_rejected: bool,
}

impl<'a> Builder<'a> {
    /// Reads the documents of the text from byte `base` on.
    fn documents(&mut self, base: usize) -> Result<(), Stopped> {
        let text: &'a str = self.reader.text().get(base..).unwrap_or("");
        let positions = Positions::new(text);
        let mut parser = Parser::new_from_str(text);
        let mut open = Open::default();
        while let Some(event) = parser.next_event() {
            let (event, span) = event.map_err(|error| self.stopped(base, &positions, &error))?;
            let at = |character: usize| base + positions.byte(character);
            let span = at(span.start.index())..at(span.end.index());
            self.values += 1;
            if self.values > MOST_VALUES {
                let message = format!("the file has more than {MOST_VALUES} values");
                return Err(self.enough(span, &message, "too large"));
            }
            match event {
                Event::DocumentStart(_) => open = Open::default(),
                Event::MappingStart(_, tag) => {
                    self.collection_tag(tag.as_deref(), &span, &mut open);
                    open.frames.push(Frame::Mapping(span.clone(), DeTable::new(), None));
                }
                Event::SequenceStart(_, tag) => {
                    self.collection_tag(tag.as_deref(), &span, &mut open);
                    open.frames.push(Frame::List(span.clone(), DeArray::new()));
                }
                Event::MappingEnd | Event::SequenceEnd => {
                    let node = match open.frames.pop() {
                        Some(Frame::List(start, items)) => {
                            let span = extent(start, &span, self.reader.text());
                            Node::Value(Spanned::new(span, DeValue::Array(items)))
                        }
                        Some(Frame::Mapping(start, entries, _)) => {
                            let span = extent(start, &span, self.reader.text());
                            Node::Value(Spanned::new(span, DeValue::Table(entries)))
                        }
                        None => Node::Rejected,
                    };
                    self.complete(node, &mut open);
                }
                Event::Scalar(text, style, _, tag) => {
                    let node = self.scalar(text, style, tag.as_deref(), span.clone());
                    self.complete(node, &mut open);
                }
                Event::Alias(_) => {
                    let finding =
                        self.rejected(&span, "YAML aliases are not supported", "an alias");
                    self.report(finding.help("write out what it stands for"));
                    self.complete(Node::Rejected, &mut open);
                }
                Event::Nothing | Event::StreamStart | Event::StreamEnd | Event::DocumentEnd => {}
            }
            if open.frames.len() > MOST_DEPTH {
                let message = format!("values are nested more than {MOST_DEPTH} deep");
                return Err(self.enough(span, &message, "too deep"));
            }
            if self.parsed.findings.len() >= MOST_FINDINGS {
                return Err(Stopped { at: span.end });
            }
        }
        Ok(())
    }

    /// Adds `node` to the innermost open list or mapping.
    fn complete(&mut self, node: Node<'a>, open: &mut Open<'a>) {
        open.is_rejected |= matches!(node, Node::Rejected);
        match open.frames.last_mut() {
            None => {
                if let (Node::Value(value), false) = (node, open.is_rejected) {
                    self.parsed.documents.push(value);
                }
            }
            Some(Frame::List(_, items)) => match node {
                Node::Value(value) => items.push(value),
                Node::Null(at) => {
                    let finding = self.rejected(&at, "an item of a list has no value", "no value");
                    self.report(finding.help("give it a value, or remove it"));
                    open.is_rejected = true;
                }
                Node::Rejected => {}
            },
            Some(Frame::Mapping(_, entries, key @ None)) => {
                let (key_of, is_rejected) = self.key(node, entries);
                *key = Some(key_of);
                open.is_rejected |= is_rejected;
            }
            Some(Frame::Mapping(_, entries, key)) => {
                let Some(key) = key.take() else { return };
                match node {
                    Node::Value(value) => {
                        entries.insert(key, value);
                    }
                    Node::Null(_) => self.parsed.nulls.push(key.span()),
                    Node::Rejected => {}
                }
            }
        }
    }

    /// Reads a key of a mapping that has `entries` already; returns it, and whether it is rejected.
    fn key(&mut self, node: Node<'a>, entries: &DeTable<'a>) -> (YamlKey<'a>, bool) {
        let (at, finding) = match node {
            Node::Value(value) => {
                let at = value.span();
                match value.into_inner() {
                    DeValue::String(text) if text == "<<" => {
                        let finding =
                            self.rejected(&at, "YAML merge keys are not supported", "a merge key");
                        (at, Some(finding.help("write out what is merged")))
                    }
                    DeValue::String(text) => {
                        let key = Spanned::new(at.clone(), text);
                        let Some((first, _)) = entries.get_key_value(&**key.get_ref()) else {
                            return (key, false);
                        };
                        let message = format!("key `{}` is given twice", key.get_ref());
                        let finding = self.rejected(&at, &message, "given again");
                        let first = self.reader.spot(first.span());
                        (at, Some(finding.related(first, "first given here")))
                    }
                    other => {
                        let message = format!("a key must be a string, not {}", other.type_str());
                        let finding = self.rejected(&at, &message, "not a string");
                        (at, Some(finding.help("put it in quotes, if it is meant")))
                    }
                }
            }
            Node::Null(at) => {
                let finding = self.rejected(&at, "a key is missing", "no key");
                (at, Some(finding))
            }
            Node::Rejected => (0..0, None),
        };
        if let Some(finding) = finding {
            self.report(finding);
        }
        (Spanned::new(at, "".into()), true)
    }

    fn scalar(
        &mut self,
        text: std::borrow::Cow<'a, str>,
        style: ScalarStyle,
        tag: Option<&Tag>,
        span: Range<usize>,
    ) -> Node<'a> {
        let is_string = match tag {
            None => style != ScalarStyle::Plain,
            Some(tag) if is_of_core(tag, "str") => true,
            Some(tag) => {
                self.tag(tag, &span);
                return Node::Rejected;
            }
        };
        let written: &'a str = self.reader.text().get(span.clone()).unwrap_or("");
        if is_string {
            let span = span.start..span.start + written.trim_end().len();
            return Node::Value(Spanned::new(span, DeValue::String(text)));
        }
        // An anchor is before its value.
        let written = written.get(written.len().saturating_sub(text.len())..).unwrap_or("");
        let value =
            if written == text { scalar::plain(written) } else { Some(DeValue::String(text)) };
        match value {
            Some(value) => Node::Value(Spanned::new(span, value)),
            None => Node::Null(span),
        }
    }

    /// Rejects the tag of a list or mapping, whose type is always that of its syntax.
    fn collection_tag(&mut self, tag: Option<&Tag>, span: &Range<usize>, open: &mut Open<'a>) {
        if let Some(tag) = tag {
            self.tag(tag, span);
            open.is_rejected = true;
        }
    }

    fn tag(&mut self, tag: &Tag, span: &Range<usize>) {
        let message = format!("YAML tags are not supported: `{tag}`");
        let finding = self.rejected(span, &message, "a tag");
        self.report(finding.help("remove it; a string is put in quotes"));
    }

    fn rejected(&self, span: &Range<usize>, message: &str, label: &str) -> Finding {
        let spot = self.reader.spot(span.clone());
        Finding::error(codes::YAML_SYNTAX, Some(spot), message).label(label)
    }

    fn report(&mut self, finding: Finding) {
        self.parsed.findings.push(finding);
    }

    /// Reports that the rest of the text is not read.
    fn enough(&mut self, span: Range<usize>, message: &str, label: &str) -> Stopped {
        let finding = self.rejected(&span, message, label);
        self.report(finding.help("the rest of the file is not read: is it policy at all?"));
        Stopped { at: self.reader.text().len() }
    }

    fn stopped(&mut self, base: usize, positions: &Positions<'_>, error: &ScanError) -> Stopped {
        let at = base + positions.byte(error.marker().index());
        let end = base + positions.byte(error.marker().index() + 1);
        let finding = self.rejected(&(at..end), error.info(), "here");
        self.report(finding);
        Stopped { at: at.max(base + 1) }
    }
}

/// The span of a list or mapping: with its brackets, or else from its first word to the end of its last. The
/// parser ends the span only where the next value begins.
fn extent(start: Range<usize>, end: &Range<usize>, text: &str) -> Range<usize> {
    if !end.is_empty() {
        return start.start..end.end;
    }
    let inside = text.get(start.start..end.start).unwrap_or("");
    let lines = inside.lines().map(str::trim_start);
    let mut length = inside.len();
    // Comments before the next value belong to that value.
    for line in lines.rev() {
        if !(line.is_empty() || line.starts_with('#') || line.starts_with("---")) {
            break;
        }
        length = inside.get(..length).unwrap_or("").trim_end().len();
        length = length.saturating_sub(line.trim_end().len());
    }
    let inside = inside.get(..length).unwrap_or("").trim_end();
    start.start..start.start + inside.len()
}

fn is_of_core(tag: &Tag, suffix: &str) -> bool {
    tag.is_yaml_core_schema() && tag.suffix == suffix
}
