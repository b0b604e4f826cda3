//! One value of a table: type checks, and spots of its parts.

use std::ops::{Range, RangeInclusive};

use ironmesh_catalog::{Code, Finding, Name, Spot};
use toml::Spanned;
use toml::de::DeValue;

use super::{FindingReported, Reader, Table, list};
use crate::codes;
use crate::suggest::{closest, did_you_mean};

/// One value, with its key.
#[derive(Debug, Clone, Copy)]
pub struct Value<'a> {
    reader: &'a Reader<'a>,
    key: &'a str,
    inner: &'a Spanned<DeValue<'a>>,
}

impl<'a> Value<'a> {
    /// The value `inner` of `key`.
    pub(crate) fn new(
        reader: &'a Reader<'a>,
        key: &'a str,
        inner: &'a Spanned<DeValue<'a>>,
    ) -> Self {
        Self { reader, key, inner }
    }

    /// The key of the value.
    pub fn key(self) -> &'a str {
        self.key
    }

    /// The parsed value with its span.
    pub(crate) fn written(self) -> &'a Spanned<DeValue<'a>> {
        self.inner
    }

    /// The spot of the value.
    pub fn spot(self) -> Spot {
        self.reader.spot(self.inner.span())
    }

    /// The spot of the bytes `part` of the string; that of the whole string if it contains escapes.
    pub fn part(self, part: Range<usize>) -> Spot {
        let span = self.inner.span();
        let written = self.reader.text().get(span.clone()).unwrap_or("");
        let found = self.inner.get_ref().as_str().and_then(|text| written.find(text));
        match found {
            Some(at) => self.reader.spot(span.start + at + part.start..span.start + at + part.end),
            None => self.spot(),
        }
    }

    /// Reports a finding.
    pub fn report(self, finding: Finding) -> FindingReported {
        self.reader.report(finding)
    }

    /// The number of findings reported so far in the whole document.
    pub fn findings_count(self) -> usize {
        self.reader.findings_count()
    }

    /// Removes the findings that were reported after the first `count`.
    pub fn truncate_findings(self, count: usize) {
        self.reader.truncate_findings(count);
    }

    /// An error at this value.
    pub fn error(self, code: Code, message: impl Into<String>) -> Finding {
        Finding::error(code, Some(self.spot()), message)
    }

    /// A string.
    pub fn string(self) -> Result<&'a str, FindingReported> {
        self.inner.get_ref().as_str().ok_or_else(|| self.wrong_type("a string"))
    }

    /// A text of 1 to `longest` characters, none of which is a control character.
    pub fn text(self, longest: usize) -> Result<&'a str, FindingReported> {
        let text = self.string()?;
        let is_short = !text.is_empty() && text.chars().take(longest + 1).count() <= longest;
        if is_short && !text.contains(char::is_control) {
            return Ok(text);
        }
        let message =
            format!("`{}` must be 1 to {longest} characters without control characters", self.key);
        Err(self.report(self.error(codes::INVALID_VALUE, message).label("invalid text")))
    }

    /// `true` or `false`.
    pub fn boolean(self) -> Result<bool, FindingReported> {
        match self.inner.get_ref() {
            DeValue::Boolean(boolean) => Ok(*boolean),
            _ => Err(self.wrong_type("`true` or `false`")),
        }
    }

    /// The string, if the value is one; it reports no finding otherwise.
    pub fn string_if_any(self) -> Option<&'a str> {
        self.inner.get_ref().as_str()
    }

    /// The string under `key`, if the value is a table that has one; it reports no finding otherwise.
    pub fn string_below(self, key: &str) -> Option<&'a str> {
        self.inner.get_ref().as_table()?.get(key)?.get_ref().as_str()
    }

    /// The tables, if the value is a table or a list of tables; it reports no finding otherwise.
    pub fn tables_if_any(self) -> Vec<Table<'a>> {
        let table = |inner: &'a Spanned<DeValue<'a>>| {
            let entries = inner.get_ref().as_table()?;
            Some(Table::new(self.reader, entries, inner.span(), ""))
        };
        match self.inner.get_ref() {
            DeValue::Array(items) => items.iter().filter_map(table).collect(),
            _ => table(self.inner).into_iter().collect(),
        }
    }

    /// A name.
    pub fn name(self) -> Result<Name, FindingReported> {
        let text = self.string()?;
        Name::new(text).map_err(|invalid| {
            let message = format!("`{}` {}: `{text}`", self.key, invalid.problem);
            let finding = self.error(codes::INVALID_NAME, message).label("not a name");
            let fixed = text.to_lowercase().replace(['_', '.', ' '], "-");
            self.report(match Name::new(&fixed) {
                Ok(fixed) => finding.help(did_you_mean(fixed.as_str())),
                Err(_) => finding.help("a name has 1 to 63 of `a-z`, `0-9` and `-`"),
            })
        })
    }

    /// A whole number within `range`; a number outside of it is a finding with `code`.
    pub fn integer(self, code: Code, range: RangeInclusive<u32>) -> Result<u32, FindingReported> {
        let DeValue::Integer(integer) = self.inner.get_ref() else {
            return Err(self.wrong_type("an integer"));
        };
        i128::from_str_radix(integer.as_str(), integer.radix())
            .ok()
            .and_then(|number| u32::try_from(number).ok())
            .filter(|number| range.contains(number))
            .ok_or_else(|| {
                let (low, high) = range.into_inner();
                let message = format!("`{}` must be from {low} to {high}: `{integer}`", self.key);
                self.report(self.error(code, message).label("out of range"))
            })
    }

    /// A share: a number from 0 to 1.
    pub fn share(self) -> Result<f64, FindingReported> {
        let written = match self.inner.get_ref() {
            DeValue::Float(float) => float.as_str(),
            DeValue::Integer(integer) => integer.as_str(),
            _ => return Err(self.wrong_type("a number")),
        };
        written.parse().ok().filter(|share| (0.0..=1.0).contains(share)).ok_or_else(|| {
            let message = format!("`{}` must be from 0 to 1: `{written}`", self.key);
            self.report(self.error(codes::INVALID_VALUE, message).label("out of range"))
        })
    }

    /// A percentage from 0 to 100, in millionths of the whole.
    pub fn percent(self) -> Result<u32, FindingReported> {
        let written = match self.inner.get_ref() {
            DeValue::Float(float) => float.as_str(),
            DeValue::Integer(integer) => integer.as_str(),
            _ => return Err(self.wrong_type("a number")),
        };
        let plain = written.replace('_', "");
        let (whole, part) = plain.split_once('.').unwrap_or((&plain, ""));
        let digits = format!("{whole}{part:0<4}");
        let millionths = (part.len() <= 4).then(|| digits.parse().ok()).flatten();
        millionths.filter(|millionths| *millionths <= 1_000_000).ok_or_else(|| {
            let message = format!(
                "`{}` must be from 0 to 100, with 4 decimals at most: `{written}`",
                self.key
            );
            self.report(self.error(codes::INVALID_VALUE, message).label("out of range"))
        })
    }

    /// The number of a port.
    pub fn port(self) -> Result<u16, FindingReported> {
        let number = self.integer(codes::INVALID_VALUE, 1..=u32::from(u16::MAX))?;
        u16::try_from(number).map_err(|_| FindingReported)
    }

    /// A text that parses as `T`; `what` names it, with its article.
    pub fn parsed<T: std::str::FromStr>(self, what: &str) -> Result<T, FindingReported> {
        let text = self.string()?;
        text.parse().map_err(|_| {
            let message = format!("`{}` must be {what}: `{text}`", self.key);
            self.report(self.error(codes::INVALID_VALUE, message).label("invalid"))
        })
    }

    /// One of a few words; `what` names them, without an article.
    pub fn word<T: Copy>(
        self,
        what: &str,
        words: &[(&'static str, T)],
    ) -> Result<T, FindingReported> {
        let text = self.string()?;
        if let Some((_, meaning)) = words.iter().find(|(word, _)| *word == text) {
            return Ok(*meaning);
        }
        let known: Vec<&str> = words.iter().map(|(word, _)| *word).collect();
        let message = format!("there is no {what} `{text}`");
        let finding = self.error(codes::INVALID_VALUE, message).label(format!("unknown {what}"));
        let flat = |text: &str| text.replace(['_', '-'], "").to_lowercase();
        let same = known.iter().copied().find(|word| flat(word) == flat(text));
        let only = if let [only] = known.as_slice() { Some(*only) } else { None };
        let near = same.or(only).or_else(|| closest(&text.to_lowercase(), known.iter().copied()));
        let help = near.map_or_else(|| format!("it is one of {}", list(&known)), did_you_mean);
        Err(self.report(finding.help(help)))
    }

    /// A table; `what` names it, with its article.
    pub fn table(self, what: &'static str) -> Result<Table<'a>, FindingReported> {
        match self.inner.get_ref() {
            DeValue::Table(entries) => {
                Ok(Table::new(self.reader, entries, self.inner.span(), what))
            }
            _ => Err(self.wrong_type("a table")),
        }
    }

    /// Whether it is a table.
    pub fn is_table(self) -> bool {
        self.inner.get_ref().is_table()
    }

    /// Whether it is an array.
    pub fn is_list(self) -> bool {
        self.inner.get_ref().is_array()
    }

    /// Checks that the value is the one string that is valid here.
    pub fn equal_to(self, legal: &str) -> Result<(), FindingReported> {
        let text = self.string()?;
        if text == legal {
            return Ok(());
        }
        let message = format!("`{}` must be `{legal}` here: `{text}`", self.key);
        Err(self.report(self.error(codes::INVALID_VALUE, message).label("another")))
    }

    /// The items of an array. Each has the array's key.
    pub fn items(self) -> Result<impl ExactSizeIterator<Item = Self>, FindingReported> {
        match self.inner.get_ref() {
            DeValue::Array(items) => Ok(items.iter().map(move |inner| Self { inner, ..self })),
            _ => Err(self.wrong_type("an array")),
        }
    }

    /// Reads all items of an array, and then returns the first failure, if any.
    pub fn each<T>(
        self,
        read: impl FnMut(Self) -> Result<T, FindingReported>,
    ) -> Result<Vec<T>, FindingReported> {
        let read: Vec<Result<T, FindingReported>> = self.items()?.map(read).collect();
        read.into_iter().collect()
    }

    /// As [`Value::each`], of at least one item; `meaning` explains in the finding what an empty list does
    /// not mean.
    pub fn at_least_one<T>(
        self,
        meaning: &str,
        read: impl FnMut(Self) -> Result<T, FindingReported>,
    ) -> Result<Vec<T>, FindingReported> {
        if self.items()?.len() == 0 {
            let finding = self.error(codes::EMPTY_LIST, format!("`{}` is empty", self.key));
            return Err(self.report(finding.label("empty list").help(meaning)));
        }
        self.each(read)
    }

    fn wrong_type(self, expected: &str) -> FindingReported {
        let found = self.inner.get_ref().type_str();
        let article = if matches!(found, "array" | "integer") { "an" } else { "a" };
        let message = format!("`{}` must be {expected}, not {article} {found}", self.key);
        self.report(self.error(codes::WRONG_TYPE, message).label(format!("{article} {found}")))
    }
}
