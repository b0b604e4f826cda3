//! The writer of TOML in the usual style: short tables in braces, and long lists with one line per item.

use std::fmt::Write as _;

use toml::Spanned;
use toml::de::{DeTable, DeValue};

use super::ImportDialect;
use super::remarks::printable;
use crate::document::Document;
use crate::kinds::PolicyKind;

/// The most characters of a line, except for a single longer item of a list.
const WIDTH: usize = 100;

/// A table of the policy.
#[derive(Debug)]
pub(super) struct Table<'a> {
    pub(super) kind: PolicyKind,
    pub(super) namespace: &'a str,
    pub(super) name: &'a str,
    pub(super) entries: DeTable<'a>,
    /// The remarks on the table.
    pub(super) remarks: Vec<String>,
}

impl<'a> Table<'a> {
    /// The position of the table, independent of the order of the input.
    pub(super) fn order(&self) -> (u8, &'static str, &'a str, &'a str) {
        (self.kind.import_place(), self.kind.key(), self.namespace, self.name)
    }

    /// The text of the table.
    pub(super) fn written(&self) -> String {
        let mut toml = String::from("\n");
        for remark in &self.remarks {
            comment(&mut toml, remark);
        }
        line(&mut toml, format_args!("[[{}]]", self.kind.key()));
        let is_understood =
            |key: &str, value: &Spanned<_>| key == "namespace" && is(value, "default");
        for (n, (key, value)) in self.entries.iter().enumerate() {
            let key: &str = key.get_ref();
            if !is_understood(key, value) {
                let is_last = n + 1 == self.entries.len();
                self.entry(&mut toml, key, value.get_ref(), is_last);
            }
        }
        toml
    }

    /// Writes a key: in one line; with one line per item of a list; or, for long items, as tables of their
    /// own if no key follows that would then belong to the last of them.
    fn entry(&self, toml: &mut String, key: &str, value: &DeValue<'_>, is_last: bool) {
        let short = format!("{} = {}", word(key), self.inline(value));
        let DeValue::Array(items) = value else {
            return line(toml, format_args!("{short}"));
        };
        if fits(&short) {
            return line(toml, format_args!("{short}"));
        }
        let lines: Vec<_> =
            items.iter().map(|item| format!("  {},", self.inline(item.get_ref()))).collect();
        let tables: Vec<_> = items.iter().filter_map(|item| item.get_ref().as_table()).collect();
        if is_last && tables.len() == items.len() && !lines.iter().all(|line| fits(line)) {
            for table in tables {
                line(toml, format_args!("[[{}.{}]]", self.kind.key(), word(key)));
                for (key, value) in table {
                    let value = self.inline(value.get_ref());
                    line(toml, format_args!("{} = {value}", word(key.get_ref())));
                }
            }
            return;
        }
        line(toml, format_args!("{} = [", word(key)));
        for one in lines {
            line(toml, format_args!("{one}"));
        }
        line(toml, format_args!("]"));
    }

    fn inline(&self, value: &DeValue<'_>) -> String {
        match value {
            DeValue::String(text) => string(text),
            DeValue::Array(items) => {
                let items: Vec<_> = items.iter().map(|item| self.inline(item.get_ref())).collect();
                format!("[{}]", items.join(", "))
            }
            DeValue::Table(entries) => {
                let entry = |(key, value): (&Spanned<_>, &Spanned<DeValue<'_>>)| {
                    let key: &std::borrow::Cow<'_, str> = key.get_ref();
                    // The default namespace of an account or a route is that of the object that names it.
                    let is_understood = key == "namespace" && is(value, self.namespace);
                    let value = || format!("{} = {}", word(key), self.inline(value.get_ref()));
                    (!is_understood).then(value)
                };
                let entries: Vec<_> = entries.iter().filter_map(entry).collect();
                format!("{{ {} }}", entries.join(", "))
            }
            DeValue::Integer(number) => number.to_string(),
            DeValue::Float(number) => number.to_string(),
            DeValue::Boolean(word) => word.to_string(),
            DeValue::Datetime(time) => time.to_string(),
        }
    }
}

/// The comment at the beginning of the document.
pub(super) fn header(documents: &[Document], dialect: Option<ImportDialect>) -> String {
    let files: Vec<_> = documents.iter().map(|document| &*document.path).collect();
    let (flag, rules) = match dialect {
        None => ("", ""),
        Some(ImportDialect::Smi) => (" --from smi", ", as the SMI specification has it"),
        Some(ImportDialect::Osm) => (" --from osm", ", as Open Service Mesh enforced it"),
    };
    let mut toml = String::new();
    let files = files.join(", ");
    comment(
        &mut toml,
        &format!("Written by `ironmesh policy import{flag}` out of {files}{rules}."),
    );
    toml
}

/// Writes the objects that the policy refers to and the input does not have.
pub(super) fn missing(toml: &mut String, missing: &[String]) {
    if missing.is_empty() {
        return;
    }
    toml.push('\n');
    comment(toml, "Not in the input; add these before you load this policy:");
    for one in missing {
        comment(toml, &format!("- {one}"));
    }
}

/// Writes a comment, with line breaks.
pub(super) fn comment(toml: &mut String, text: &str) {
    let mut written = String::from("#");
    for word in text.split_whitespace() {
        if written.chars().count() + 1 + word.chars().count() > WIDTH && written != "#" {
            line(toml, format_args!("{}", printable(&written)));
            written = String::from("#");
        }
        written.push(' ');
        written.push_str(word);
    }
    line(toml, format_args!("{}", printable(&written)));
}

fn line(toml: &mut String, text: std::fmt::Arguments<'_>) {
    // Writing to a string does not fail.
    let _ = writeln!(toml, "{text}");
}

fn is(value: &Spanned<DeValue<'_>>, text: &str) -> bool {
    value.get_ref().as_str() == Some(text)
}

fn fits(line: &str) -> bool {
    line.chars().count() <= WIDTH
}

/// A key.
fn word(key: &str) -> String {
    let is_bare = |b: u8| b.is_ascii_alphanumeric() || b == b'-' || b == b'_';
    if !key.is_empty() && key.bytes().all(is_bare) { key.to_owned() } else { string(key) }
}

fn string(text: &str) -> String {
    toml::Value::String(text.to_owned()).to_string()
}
