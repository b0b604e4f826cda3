//! The table reader: reads a parsed TOML table key by key, and reports every problem of its shape.
//!
//! It owns no list of keys, and never stops at the first problem. A value that cannot be read becomes a
//! [`FindingReported`], which the caller passes on after it has read everything else.

#[cfg(test)]
pub(crate) mod key_log;
mod value;

use std::cell::RefCell;
use std::ops::Range;

use ironmesh_catalog::{Finding, Spot};
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

use crate::codes;
use crate::document::{Document, Source};
use crate::findings::Findings;
use crate::limits::FINDINGS_OF_ONE;
use crate::suggest::{closest, did_you_mean};

pub use value::Value;

/// A value that could not be read, and whose finding has been reported.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FindingReported;

/// The reader of one document: it resolves spots and collects findings.
#[derive(Debug)]
pub(crate) struct Reader<'a> {
    source: Source<'a>,
    findings: RefCell<Findings>,
}

impl<'a> Reader<'a> {
    /// A reader of `document`.
    pub(crate) fn new(document: &'a Document) -> Self {
        let findings = RefCell::new(Findings::at_most(FINDINGS_OF_ONE));
        Self { source: Source::new(document), findings }
    }

    /// A reader of `document` as YAML, whatever its name. It keeps all findings, since each belongs to a
    /// resource whose remarks quote it.
    pub(crate) fn yaml(document: &'a Document) -> Self {
        let findings = RefCell::new(Findings::at_most(usize::MAX));
        Self { source: Source::yaml(document), findings }
    }

    /// The text that is read.
    pub(crate) fn text(&self) -> &'a str {
        self.source.text()
    }

    /// The spot of `bytes`. Of a mapping in YAML it is the first line: it has no brackets, and may be
    /// as long as the file.
    pub(crate) fn spot(&self, bytes: Range<usize>) -> Spot {
        let written = self.text().get(bytes.clone()).unwrap_or("");
        match written.lines().next() {
            Some(line) if self.source.is_yaml() => {
                self.source.spot(bytes.start..bytes.start + line.trim_end().len())
            }
            _ => self.source.spot(bytes),
        }
    }

    /// The document's spelling of a policy key.
    fn word(&self, key: &'static str) -> &'static str {
        if !self.source.is_yaml() {
            return key;
        }
        WORDS_OF_YAML.iter().find(|(ours, _)| *ours == key).map_or(key, |(_, yaml)| yaml)
    }

    /// The number of findings reported so far.
    pub(crate) fn findings_count(&self) -> usize {
        self.findings.borrow().len()
    }

    /// Reports a finding.
    pub(crate) fn report(&self, finding: Finding) -> FindingReported {
        self.findings.borrow_mut().push(finding);
        FindingReported
    }

    /// Removes the findings that were reported after the first `count`.
    pub(crate) fn truncate_findings(&self, count: usize) {
        self.findings.borrow_mut().truncate(count);
    }

    /// Takes all findings reported so far, and leaves none.
    pub(crate) fn take_findings(&self) -> Findings {
        self.findings.replace(Findings::at_most(FINDINGS_OF_ONE))
    }
}

/// Keys that SMI and Open Service Mesh spell differently: the policy's spelling and theirs.
const WORDS_OF_YAML: [(&str, &str); 14] = [
    ("endpoint_labels", "matchLabels"),
    ("ingress_port", "ingressPort"),
    ("ip_addresses", "ipAddresses"),
    ("num_retries", "numRetries"),
    ("path_regex", "pathRegex"),
    ("per_try_timeout", "perTryTimeout"),
    ("retry_backoff_base_interval", "retryBackoffBaseInterval"),
    ("retry_on", "retryOn"),
    ("retry_policy", "retryPolicy"),
    ("service_account", "serviceAccount"),
    ("skip_client_cert_validation", "skipClientCertValidation"),
    ("sni_hosts", "sniHosts"),
    ("spiffe_identities", "spiffeIdentities"),
    ("target_port", "targetPort"),
];

/// One table while its keys are read.
///
/// The caller must call [`Table::finish`] after it has read all keys: it reports the unknown ones.
#[derive(Debug)]
pub struct Table<'a> {
    reader: &'a Reader<'a>,
    entries: &'a DeTable<'a>,
    span: Range<usize>,
    /// The name of the table, with its article: `a service`.
    what: &'static str,
    known: Vec<&'static str>,
}

impl<'a> Table<'a> {
    /// The table of `entries` at `span`; `what` names it.
    pub(crate) fn new(
        reader: &'a Reader<'a>,
        entries: &'a DeTable<'a>,
        span: Range<usize>,
        what: &'static str,
    ) -> Self {
        Self { reader, entries, span, what, known: Vec::new() }
    }

    /// The spot of the table: its header, or the whole of an inline table.
    pub fn spot(&self) -> Spot {
        self.reader.spot(self.span.clone())
    }

    /// Reports a finding.
    pub fn report(&self, finding: Finding) -> FindingReported {
        self.reader.report(finding)
    }

    /// The value of `key`, if it is given.
    pub fn get(&mut self, key: &'static str) -> Option<Value<'a>> {
        if !self.known.contains(&key) {
            self.known.push(key);
        }
        let word = self.reader.word(key);
        self.entries.get(key).map(|inner| Value::new(self.reader, word, inner))
    }

    /// `key` and its value as they are written, if it is given.
    pub(crate) fn entry(
        &mut self,
        key: &'static str,
    ) -> Option<(&'a Spanned<DeString<'a>>, &'a Spanned<DeValue<'a>>)> {
        self.known.push(key);
        self.entries.get_key_value(key)
    }

    /// Reads an optional key.
    pub fn optional<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Value<'a>) -> Result<T, FindingReported>,
    ) -> Result<Option<T>, FindingReported> {
        self.get(key).map(read).transpose()
    }

    /// Reads a required key.
    pub fn required<T>(
        &mut self,
        key: &'static str,
        read: impl FnOnce(Value<'a>) -> Result<T, FindingReported>,
    ) -> Result<T, FindingReported> {
        match self.get(key) {
            Some(value) => read(value),
            None => Err(self.missing(key)),
        }
    }

    /// Reports that the required `key` is missing.
    pub fn missing(&self, key: &'static str) -> FindingReported {
        let key = self.reader.word(key);
        let message = format!("{} needs `{key}`", self.what);
        let finding = Finding::error(codes::MISSING_KEY, Some(self.spot()), message);
        self.report(finding.label(format!("`{key}` is missing")))
    }

    /// The spot of a `key` that the caller rejects, if it is given. Findings never list it as a valid key.
    pub fn rejected_key(&mut self, key: &'static str) -> Option<Spot> {
        let (written, _) = self.entries.get_key_value(key)?;
        self.known.push(key);
        Some(self.reader.spot(written.span()))
    }

    /// Reports the keys that the caller did not read.
    pub fn finish(self) {
        #[cfg(test)]
        key_log::note(self.what, &self.known);
        for (key, _) in self.entries {
            let written: &str = key.get_ref();
            if self.known.contains(&written) {
                continue;
            }
            let message = format!("{} has no key `{written}`", self.what);
            let spot = self.reader.spot(key.span());
            let finding =
                Finding::error(codes::UNKNOWN_KEY, Some(spot), message).label("unknown key");
            // A key that is given already is no useful suggestion.
            let free =
                self.known.iter().copied().filter(|known| !self.entries.contains_key(*known));
            self.report(match closest(written, free) {
                Some(candidate) => finding.help(did_you_mean(candidate)),
                None => finding.help(format!("its keys are {}", list(&self.known))),
            });
        }
    }

    /// All keys with their values, for tables whose keys are the user's own words.
    pub fn entries(&self) -> impl Iterator<Item = (Spot, Value<'a>)> {
        let reader = self.reader;
        self.entries.iter().map(move |(key, inner)| {
            (reader.spot(key.span()), Value::new(reader, key.get_ref(), inner))
        })
    }
}

/// Words as a list in a sentence: `a`, `b` and `c`.
pub(crate) fn list(words: &[&str]) -> String {
    let quoted: Vec<String> = words.iter().map(|word| format!("`{word}`")).collect();
    match quoted.split_last() {
        None => "none".to_owned(),
        Some((only, [])) => only.clone(),
        Some((last, others)) => format!("{} and {last}", others.join(", ")),
    }
}
