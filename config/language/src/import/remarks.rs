//! The remarks of an import: beside the tables that resources became, or in place of them.

use std::mem;
use std::ops::Range;

use ironmesh_catalog::Finding;

use super::Remark;
use super::writing::comment;
use crate::yaml::Outcome;

/// All remarks of an import.
#[derive(Debug, Default)]
pub(super) struct Remarks {
    pub(super) left_out: Vec<Remark>,
    pub(super) changed: Vec<Remark>,
    /// The remarks on each table, in the order of the tables.
    of_tables: Vec<Vec<String>>,
    /// Resources without a table, each with the reason and, if it is policy, its text.
    without_table: Vec<(Remark, Option<String>)>,
    /// Resources that are no policy.
    inert: Vec<String>,
}

impl Remarks {
    /// Adds the outcomes of one source. `findings` are all findings of its reader.
    pub(super) fn add_source(
        &mut self,
        text: &str,
        outcomes: &[Outcome<'_>],
        findings: &[Finding],
    ) {
        let mut of_resources = vec![false; findings.len()];
        for outcome in outcomes {
            let reported = findings.get(outcome.findings.clone()).unwrap_or_default();
            of_resources.get_mut(outcome.findings.clone()).unwrap_or_default().fill(true);
            self.add(text, outcome, reported);
        }
        let others =
            findings.iter().zip(of_resources).filter(|(_, is_of_resource)| !is_of_resource);
        for (finding, _) in others {
            let Some(spot) = finding.spot.clone() else { continue };
            let resource = "document".to_owned();
            let remark = Remark { spot, resource, text: sentence(finding) };
            self.left_out.push(remark.clone());
            self.without_table.push((remark, None));
        }
    }

    fn add(&mut self, text: &str, outcome: &Outcome<'_>, findings: &[Finding]) {
        let name =
            outcome.name.map_or(String::new(), |name| format!(" `{}/{name}`", outcome.namespace));
        let resource = format!("{}{name}", outcome.kind);
        if outcome.is_inert {
            self.inert.push(resource);
            return;
        }
        let remark =
            |text: String| Remark { spot: outcome.spot.clone(), resource: resource.clone(), text };
        if outcome.mapped.is_none() {
            let reasons: Vec<_> = findings.iter().map(sentence).collect();
            let remark = remark(reasons.join(" "));
            self.left_out.push(remark.clone());
            let said = outcome.is_of_mesh.then(|| unindented(text, outcome.span.clone()));
            self.without_table.push((remark, said));
            return;
        }
        // A resource with a warning is in the policy nevertheless.
        let (errors, warnings): (Vec<_>, Vec<_>) =
            findings.iter().partition(|finding| finding.is_error());
        let changes = outcome.changes.iter().cloned().chain(warnings.into_iter().map(sentence));
        let (changes, errors): (Vec<_>, Vec<_>) =
            (changes.collect(), errors.into_iter().map(sentence).collect());
        self.changed.extend(changes.iter().cloned().map(remark));
        self.left_out.extend(errors.iter().cloned().map(remark));
        let errors = errors.into_iter().map(|error| format!("Left out: {error}"));
        self.of_tables.push(changes.into_iter().chain(errors).collect());
    }

    /// The remarks on each table, in the order of the tables.
    pub(super) fn take_of_tables(&mut self) -> Vec<Vec<String>> {
        mem::take(&mut self.of_tables)
    }

    /// Writes the resources without a table.
    pub(super) fn write_left_out(&mut self, toml: &mut String) {
        for (remark, said) in mem::take(&mut self.without_table) {
            let Remark { spot, resource, text } = remark;
            toml.push('\n');
            comment(toml, &format!("Left out: {resource}, {}:{}. {text}", spot.file, spot.line));
            for line in said.iter().flat_map(|said| said.lines()) {
                toml.push_str(format!("#     {}", printable(line)).trim_end());
                toml.push('\n');
            }
        }
        let mut inert = mem::take(&mut self.inert);
        inert.sort();
        if !inert.is_empty() {
            toml.push('\n');
            comment(toml, &format!("Passed over, being no policy: {}.", inert.join(", ")));
        }
    }
}

/// The text at `span` without the indentation of its first line, which all lines of a list item share.
fn unindented(text: &str, span: Range<usize>) -> String {
    let before = text.get(..span.start).unwrap_or("");
    let indentation = before.len() - before.rfind('\n').map_or(0, |at| at + 1);
    let lines = text.get(span).unwrap_or("").lines().enumerate().map(|(n, line)| {
        let spaces = line.len() - line.trim_start_matches(' ').len();
        line.get(if n == 0 { 0 } else { spaces.min(indentation) }..).unwrap_or("")
    });
    lines.collect::<Vec<_>>().join("\n")
}

/// A finding as a sentence.
fn sentence(finding: &Finding) -> String {
    let mut text = finding.message.clone();
    if let Some(first) = text.get_mut(..1) {
        first.make_ascii_uppercase();
    }
    // The importer has followed advice to remove something.
    let help = finding.help.as_ref().filter(|help| !help.starts_with("remove "));
    let help = help.map_or(String::new(), |help| format!(": {help}"));
    let end = if help.ends_with('?') { "" } else { "." };
    format!("{text}{help}{end}")
}

/// A line without the characters that a comment in TOML may not contain.
pub(super) fn printable(line: &str) -> String {
    let legal = |c: char| if c.is_control() && c != '\t' { char::REPLACEMENT_CHARACTER } else { c };
    line.trim_end_matches('\r').chars().map(legal).collect()
}
