//! Active findings and silences, as text.

use std::fmt::Write as _;

use ironmesh_api::{FindingView, SilenceView, SilencedView};

/// The active findings, each with its objects and its silence; then the active silences.
pub fn list(findings: &[FindingView], silences: &[SilenceView]) -> String {
    let mut text = String::new();
    for finding in findings {
        let _ = writeln!(text, "{}", headline(finding));
        let details = details(finding);
        let objects: Vec<_> = finding.objects.iter().map(ToString::to_string).collect();
        if !objects.is_empty() {
            let _ = writeln!(text, "  {}", objects.join(", "));
        }
        if let Some(silence) = &finding.silenced {
            let _ = writeln!(text, "  {}", silence_text(silence));
        }
        for line in details {
            let _ = writeln!(text, "  {line}");
        }
    }
    if findings.is_empty() {
        text.push_str("no active findings\n");
    }
    let active: Vec<_> = silences.iter().filter(|silence| silence.state == "active").collect();
    if !active.is_empty() {
        text.push('\n');
    }
    for silence in active {
        let SilenceView { id, expires_at, by, reason, .. } = silence;
        let about = about(silence);
        let count = counted(silence.findings, "finding", "findings");
        let _ = writeln!(
            text,
            "silence {id}: {about} until {expires_at:.0} by {by}: {reason} ({count})"
        );
    }
    text
}

/// The severity, the code and the message of a finding.
pub fn headline(finding: &FindingView) -> String {
    format!("{}[{}]: {}", finding.severity, finding.code, finding.message)
}

/// Where the finding is, and what to do.
pub(crate) fn details(finding: &FindingView) -> Vec<String> {
    let place = finding.place.file.as_ref().zip(finding.place.line);
    let place = place.map(|(file, line)| format!("at {file}:{line}"));
    let help = finding.help.as_ref().map(|help| format!("help: {help}"));
    place.into_iter().chain(help).collect()
}

/// The silence of a finding.
pub fn silence_text(silence: &SilencedView) -> String {
    let SilencedView { id, reason, by, until } = silence;
    format!("silenced until {until:.0} by {by}: {reason} ({id})")
}

/// The answer to a new silence.
pub fn silenced(silence: &SilenceView) -> String {
    let SilenceView { id, expires_at, findings, in_part, .. } = silence;
    let about = about(silence);
    let count = counted(*findings, "finding", "findings");
    let mut text = format!("silence {id}: {about} until {expires_at:.0}, {count}\n");
    if *in_part > 0 {
        let several = counted(*in_part, "finding has", "findings have");
        let _ = writeln!(
            text,
            "note: {several} further objects without a silence, and stay active: `ironmesh finding list` shows them"
        );
    }
    text
}

/// The answer to the removal of a silence.
pub fn unsilenced(silence: &SilenceView) -> String {
    let SilenceView { id, expires_at, removed_at, removed_by, .. } = silence;
    let about = about(silence);
    match (removed_at, removed_by) {
        (Some(at), Some(by)) => {
            format!("silence {id} of {about} was removed at {at:.0} by {by}\n")
        }
        _ => format!("silence {id} of {about} ended at {expires_at:.0}\n"),
    }
}

fn about(silence: &SilenceView) -> String {
    let object = silence.object.as_ref().map(|object| format!(" {object}")).unwrap_or_default();
    format!("{}{object}", silence.code)
}

fn counted(count: usize, one: &str, several: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { several })
}
