//! Findings: problems of the user's input, in contrast to errors, which are failed operations.
//!
//! Findings are collected, never thrown: one run reports all problems of all files.

use std::borrow::Cow;
use std::cmp::Ordering;
use std::fmt;
use std::ops::Range;
use std::str::FromStr;
use std::sync::Arc;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::object_ref::ObjectRef;
use crate::text::escape_line;

/// The stable code of a kind of finding, such as `IM0101`. Each has a page in `docs/errors/`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct Code(pub u16);

impl FromStr for Code {
    type Err = InvalidCode;

    fn from_str(text: &str) -> Result<Self, InvalidCode> {
        let digits = text.strip_prefix("IM").filter(|digits| digits.len() == 4);
        let is_number = |digits: &&str| digits.bytes().all(|byte| byte.is_ascii_digit());
        let number = digits.filter(is_number).and_then(|digits| digits.parse().ok());
        number.map(Self).ok_or(InvalidCode)
    }
}

impl TryFrom<String> for Code {
    type Error = InvalidCode;

    fn try_from(text: String) -> Result<Self, InvalidCode> {
        text.parse()
    }
}

impl From<Code> for String {
    fn from(code: Code) -> Self {
        code.to_string()
    }
}

/// A text that is no code.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
#[error("code is malformed: it is `IM` and four digits, such as `IM0732`")]
pub struct InvalidCode;

impl fmt::Display for Code {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "IM{:04}", self.0)
    }
}

/// The severity of a finding.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Severity {
    /// The input is rejected, and the previous input stays active.
    Error,
    /// The input is accepted, but is probably not what was meant.
    Warning,
}

impl fmt::Display for Severity {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Error => "error",
            Self::Warning => "warning",
        })
    }
}

/// A location in a document of the user.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
pub struct Spot {
    /// The file, relative to the policy folder.
    pub file: Arc<str>,
    /// The line, from 1.
    pub line: u32,
    /// The column in characters, from 1.
    pub column: u32,
    /// The bytes of the file. (Only useful with the file, so never shown.)
    #[serde(skip)]
    pub bytes: (usize, usize),
    /// The line of the first character after it, from 1.
    pub end_line: u32,
    /// The column of that character, from 1.
    pub end_column: u32,
}

impl Spot {
    /// The spot of `bytes` in `file`, whose whole text is `text`.
    pub fn new(file: &Arc<str>, text: &str, bytes: Range<usize>) -> Self {
        let start = bytes.start.min(text.len());
        let end = bytes.end.clamp(start, text.len());
        let (line, column) = line_and_column(text, start);
        let (end_line, end_column) = line_and_column(text, end);
        Self { file: Arc::clone(file), line, column, bytes: (start, end), end_line, end_column }
    }
}

/// The line and the column, in characters, of the byte `at`. Both count from 1.
fn line_and_column(text: &str, at: usize) -> (u32, u32) {
    let before = text.get(..at).unwrap_or(text);
    let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
    let count = |n: usize| u32::try_from(n).unwrap_or(u32::MAX);
    let column = before.get(line_start..).unwrap_or("").chars().count() + 1;
    (count(before.matches('\n').count() + 1), count(column))
}

impl fmt::Display for Spot {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}:{}:{}", escape_line(&self.file), self.line, self.column)
    }
}

/// One problem of the input: the problem, its location and advice. Its texts may quote foreign input, so each
/// is one line without control characters.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct Finding {
    /// The kind of the finding.
    pub code: Code,
    /// Its severity.
    pub severity: Severity,
    /// The problem, in lower case and without a full stop.
    pub message: String,
    /// Its location. `None` if it is about a whole folder.
    pub spot: Option<Spot>,
    /// A short description of the spot, annotated beside it.
    pub label: String,
    /// Related locations, each with a description.
    pub related: Vec<(Spot, String)>,
    /// The advice.
    pub help: Option<String>,
    /// The objects that have the problem, in order; empty if that is the mesh as a whole.
    pub objects: Vec<ObjectRef>,
}

impl Finding {
    /// The most objects of a finding. One about more is a finding about the mesh as a whole.
    pub const MAX_OBJECTS: usize = 100;

    /// An error of kind `code` at `spot`.
    pub fn error(code: Code, spot: Option<Spot>, message: impl Into<String>) -> Self {
        Self::with_severity(Severity::Error, code, spot, message.into())
    }

    /// A warning of kind `code` at `spot`.
    pub fn warning(code: Code, spot: Option<Spot>, message: impl Into<String>) -> Self {
        Self::with_severity(Severity::Warning, code, spot, message.into())
    }

    /// The finding with an annotation of its spot.
    #[must_use]
    pub fn label(mut self, label: impl Into<String>) -> Self {
        self.label = line(label.into());
        self
    }

    /// The finding with a related location.
    #[must_use]
    pub fn related(mut self, spot: Spot, what: impl Into<String>) -> Self {
        self.related.push((spot, line(what.into())));
        self
    }

    /// The finding with advice.
    #[must_use]
    pub fn help(mut self, help: impl Into<String>) -> Self {
        self.help = Some(line(help.into()));
        self
    }

    /// The finding about this object too. An object is one that has the problem, not one that is near it.
    #[must_use]
    pub fn object(self, object: impl Into<ObjectRef>) -> Self {
        self.objects([object.into()])
    }

    /// The finding about these objects too, unless they are more than [`Self::MAX_OBJECTS`].
    #[must_use]
    pub fn objects(mut self, objects: impl IntoIterator<Item = ObjectRef>) -> Self {
        self.objects.extend(objects.into_iter().take(Self::MAX_OBJECTS + 1));
        self.objects.sort();
        self.objects.dedup();
        if self.objects.len() > Self::MAX_OBJECTS {
            self.objects.clear();
        }
        self
    }

    /// What stays the same while the problem lasts: 16 hexadecimal digits of its code and its objects. Counts, the
    /// message and the severity may change.
    pub fn fingerprint(&self) -> String {
        // FNV-1a: a digest that is the same in all versions, and that no attacker gains from.
        let mut digest = 0xcbf2_9ce4_8422_2325_u64;
        let mut add = |text: &str| {
            for byte in text.bytes().chain([0]) {
                digest = (digest ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
            }
        };
        add(&self.code.to_string());
        self.objects.iter().for_each(|object| add(&object.to_string()));
        format!("{digest:016x}")
    }

    /// Whether the input is rejected because of it.
    pub fn is_error(&self) -> bool {
        self.severity == Severity::Error
    }

    /// The order in which findings are reported: by location, then by code.
    pub fn order(&self, other: &Self) -> Ordering {
        (&self.spot, self.code, &self.message).cmp(&(&other.spot, other.code, &other.message))
    }

    fn with_severity(severity: Severity, code: Code, spot: Option<Spot>, message: String) -> Self {
        Self {
            code,
            severity,
            message: line(message),
            spot,
            label: String::new(),
            related: Vec::new(),
            help: None,
            objects: Vec::new(),
        }
    }
}

fn line(text: String) -> String {
    match escape_line(&text) {
        Cow::Borrowed(_) => text,
        Cow::Owned(escaped) => escaped,
    }
}

impl fmt::Display for Finding {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}[{}]: {}", self.severity, self.code, self.message)?;
        match &self.spot {
            Some(spot) => write!(f, " ({spot})"),
            None => Ok(()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn finding_with_quoted_control_characters_is_one_escaped_line() {
        let hostile = "a\u{1b}[2J\nb\u{202e}";
        let safe = "a\\u001b[2J\\u000ab\\u202e";
        let spot = Spot::new(&hostile.into(), "", 0..0);
        let finding = Finding::warning(Code(101), Some(spot.clone()), hostile);
        let finding = finding.label(hostile).help(hostile).related(spot, hostile);
        assert_eq!([&finding.message, &finding.label, finding.help.as_ref().unwrap()], [safe; 3]);
        assert_eq!(finding.related[0].1, safe);
        assert_eq!(finding.to_string(), format!("warning[IM0101]: {safe} ({safe}:1:1)"));
    }

    #[test]
    fn code_is_read_from_its_text_only() {
        assert_eq!("IM0732".parse(), Ok(crate::codes::NO_ENDPOINT_FOR_CALLERS));
        for bad in ["", "732", "IM732", "im0732", "IM07320", "IM+732", "IM07é"] {
            assert_eq!(bad.parse::<Code>(), Err(InvalidCode), "{bad}");
        }
    }

    #[test]
    fn fingerprint_depends_on_code_and_objects_only() {
        let object = |text: &str| text.parse::<ObjectRef>().unwrap();
        let (one, other) = (object("service:shop/web"), object("provider:consul"));
        let finding =
            Finding::warning(Code(301), None, "1 of 2").objects([one.clone(), other.clone()]);
        let same =
            Finding::error(Code(301), None, "2 of 2").object(other.clone()).object(one.clone());
        assert_eq!(finding.fingerprint(), same.object(one.clone()).fingerprint());
        // (It is compared across restarts and versions.)
        assert_eq!(finding.fingerprint(), "5bab33168208945c");
        for differs in [
            Finding::warning(Code(302), None, "1 of 2").objects([one.clone(), other]),
            Finding::warning(Code(301), None, "1 of 2").object(one),
            Finding::warning(Code(301), None, "1 of 2"),
        ] {
            assert_ne!(finding.fingerprint(), differs.fingerprint(), "{differs}");
        }
    }

    #[test]
    fn finding_about_too_many_objects_is_about_the_mesh() {
        let files = |count: usize| (0..count).map(|number| ObjectRef::File(number.to_string()));
        let finding = || Finding::warning(Code(101), None, "many");
        assert_eq!(finding().objects(files(Finding::MAX_OBJECTS)).objects.len(), 100);
        assert!(finding().objects(files(Finding::MAX_OBJECTS + 1)).objects.is_empty());
    }

    #[test]
    fn spot_counts_lines_and_characters_from_one() {
        let file: Arc<str> = "a.toml".into();
        let text = "first\nsäcond\n";
        let spot = Spot::new(&file, text, 9..10);
        assert_eq!((spot.line, spot.column), (2, 3));
        assert_eq!((spot.end_line, spot.end_column), (2, 4));
        assert_eq!(Spot::new(&file, text, 1..14).end_line, 3);
        assert_eq!(Spot::new(&file, text, 99..100).bytes, (text.len(), text.len()));
        assert_eq!(Spot::new(&file, "", 0..0).to_string(), "a.toml:1:1");
    }
}
