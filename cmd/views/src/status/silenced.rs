//! The silenced findings in the status: what they take out of the problems, and one line for each.
//!
//! An outage that callers see is never taken out.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use ironmesh_api::FindingView;
use ironmesh_catalog::{Code, ObjectRef};

use crate::findings::{headline, silence_text};

/// The most silenced findings that get a line each.
const LISTED: usize = 20;

/// The silenced ones of the active findings.
#[derive(Debug, Default)]
pub(super) struct Silenced {
    /// Those that are no problem because of their silence.
    hidden: Vec<FindingView>,
    /// The others: outages.
    outages: Vec<FindingView>,
    /// The objects of the first, by code.
    objects: BTreeSet<(String, ObjectRef)>,
}

impl Silenced {
    pub(super) fn among(findings: &[FindingView]) -> Self {
        let silenced = findings.iter().filter(|finding| finding.silenced.is_some()).cloned();
        let (hidden, outages): (Vec<_>, Vec<_>) = silenced.partition(FindingView::is_hidden);
        let objects = hidden.iter().flat_map(|finding| {
            let objects = finding.objects.iter();
            objects.map(|object| (finding.code.clone(), object.clone()))
        });
        Self { objects: objects.collect(), hidden, outages }
    }

    /// Whether a silence hides the problem with this code of an object.
    pub(super) fn hides(&self, code: Code, object: impl Into<ObjectRef>) -> bool {
        self.objects.contains(&(code.to_string(), object.into()))
    }

    /// Whether a silence hides the problem with this code, which has no object.
    pub(super) fn hides_code(&self, code: Code) -> bool {
        let code = code.to_string();
        self.hidden.iter().any(|finding| finding.code == code)
    }

    /// The line about the silence of an outage; empty if it has none.
    pub(super) fn of_outage(&self, code: Code) -> String {
        let code = code.to_string();
        let silence = self.outages.iter().find(|finding| finding.code == code);
        let silence = silence.and_then(|finding| finding.silenced.as_ref());
        silence.map_or_else(String::new, |silence| {
            format!("\n{}; an outage stays a problem", silence_text(silence))
        })
    }

    /// One line for each that is hidden.
    pub(super) fn lines(&self) -> String {
        let mut text = String::new();
        for finding in self.hidden.iter().take(LISTED) {
            let silence = finding.silenced.as_ref().map(silence_text).unwrap_or_default();
            let _ = writeln!(text, "{}; {silence}", headline(finding));
        }
        let more = self.hidden.len().saturating_sub(LISTED);
        if more > 0 {
            let _ = writeln!(
                text,
                "and {more} more silenced findings: `ironmesh finding list` lists them all"
            );
        }
        text
    }

    /// The count of all of them, as a line of the summary; empty if there are none.
    pub(super) fn summary(&self) -> String {
        match self.hidden.len() + self.outages.len() {
            0 => String::new(),
            1 => "silenced       1 finding\n".to_owned(),
            several => format!("silenced       {several} findings\n"),
        }
    }
}
