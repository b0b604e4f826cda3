//! A bounded collection of findings: it keeps some of each severity, and whether there are more.
//!
//! The bound is needed because a file that is no policy may have a finding in each of its lines.

use ironmesh_catalog::Finding;

use crate::codes;
use crate::limits::{FINDINGS, MESSAGE_BYTES};

/// A bounded number of findings, in the order of their reports.
#[derive(Debug)]
pub(crate) struct Findings {
    most: usize,
    kept: Vec<Finding>,
    errors: usize,
    has_more: bool,
}

impl Findings {
    /// An empty collection that keeps `most` findings of each severity.
    pub(crate) fn at_most(most: usize) -> Self {
        Self { most, kept: Vec::new(), errors: 0, has_more: false }
    }

    /// Adds a finding. If any error is added, at least one error is kept.
    pub(crate) fn push(&mut self, mut finding: Finding) {
        let like = if finding.is_error() { self.errors } else { self.kept.len() - self.errors };
        if like < self.most {
            self.errors += usize::from(finding.is_error());
            shorten(&mut finding.message);
            finding.help.as_mut().map(shorten);
            self.kept.push(finding);
        } else {
            self.has_more = true;
        }
    }

    /// Records whether there are findings besides these.
    pub(crate) fn have_more(&mut self, more: bool) {
        self.has_more |= more;
    }

    /// The number of kept findings.
    pub(crate) fn len(&self) -> usize {
        self.kept.len()
    }

    /// Removes the findings after the first `count`.
    pub(crate) fn truncate(&mut self, count: usize) {
        self.kept.truncate(count);
        self.errors = self.kept.iter().filter(|finding| finding.is_error()).count();
    }

    /// Whether one of the findings is an error, so that the input is rejected.
    pub(crate) fn has_errors(&self) -> bool {
        self.errors > 0
    }

    /// The kept findings, in the order of their reports.
    pub(crate) fn into_vec(self) -> Vec<Finding> {
        self.kept
    }

    /// The kept findings, errors first, and whether there are more.
    pub(crate) fn into_parts(self) -> (Vec<Finding>, bool) {
        let (errors, warnings): (Vec<_>, Vec<_>) =
            self.kept.into_iter().partition(Finding::is_error);
        (errors.into_iter().chain(warnings).collect(), self.has_more)
    }

    /// The findings to report, in order: at most as many as of one severity, errors before warnings. If there
    /// are more, the last finding states this.
    pub(crate) fn in_order(self) -> Vec<Finding> {
        let most = self.most;
        let (mut findings, mut has_more) = self.into_parts();
        has_more |= findings.len() > most;
        findings.truncate(most);
        let is_rejected = findings.iter().any(Finding::is_error);
        findings.sort_by(Finding::order);
        if has_more {
            let message = format!("there are more findings than these {}", findings.len());
            let finding = if is_rejected { Finding::error } else { Finding::warning };
            let finding = finding(codes::TOO_MANY_FINDINGS, None, message);
            findings.push(finding.help("fix the reported findings, and check again"));
        }
        findings
    }
}

/// An empty collection with the bound for all documents.
impl Default for Findings {
    fn default() -> Self {
        Self::at_most(FINDINGS)
    }
}

impl Extend<Finding> for Findings {
    fn extend<I: IntoIterator<Item = Finding>>(&mut self, findings: I) {
        findings.into_iter().for_each(|finding| self.push(finding));
    }
}

fn shorten(text: &mut String) {
    if text.len() > MESSAGE_BYTES {
        let end = (0..=MESSAGE_BYTES).rev().find(|at| text.is_char_boundary(*at));
        text.truncate(end.unwrap_or_default());
        text.push('…');
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn errors_precede_warnings_and_the_excess_is_reported() {
        let mut findings = Findings::at_most(3);
        findings.extend((0..5).map(|n| Finding::warning(codes::REGEX, None, n.to_string())));
        findings.extend((0..2).map(|n| Finding::error(codes::REGEX, None, n.to_string())));
        let reported: Vec<_> = findings.in_order().iter().map(ToString::to_string).collect();
        assert_eq!(
            reported,
            [
                "error[IM0302]: 0",
                "warning[IM0302]: 0",
                "error[IM0302]: 1",
                "error[IM0114]: there are more findings than these 3"
            ]
        );
    }

    #[test]
    fn long_message_is_truncated_at_a_character_boundary() {
        let mut findings = Findings::at_most(1);
        let text = "ä".repeat(MESSAGE_BYTES);
        findings.push(Finding::error(codes::REGEX, None, text.clone()).help(text));
        let reported = findings.in_order();
        assert_eq!(reported[0].message.len(), MESSAGE_BYTES + '…'.len_utf8());
        assert_eq!(reported[0].help.as_ref(), Some(&reported[0].message));
    }
}
