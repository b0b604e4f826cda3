//! The text of `ironmesh cert status`.

use std::fmt::Write as _;

use ironmesh_api::{CertificateKindSummary, CertificateRenewer, CertificateSummary};
use jiff::Timestamp;

use super::table::narrow;
use crate::proxies::state_text;
use ironmesh_terminal::table::relative;

/// The width of the column of kinds.
const KIND: usize = 13;

/// The certificates that need attention, then two lines for each kind.
pub fn summary_text(summary: &CertificateSummary, now: Timestamp) -> String {
    let mut text = String::new();
    if !summary.problems.is_empty() {
        text = narrow(&summary.problems, now) + "\n";
    }
    for kind in &summary.kinds {
        let states = kind.states.iter();
        let states: Vec<_> =
            states.map(|(state, count)| format!("{count} {}", state_text(state))).collect();
        // (Writing to a string does not fail.)
        let _ = writeln!(text, "{:<KIND$}  {}", kind.kind.to_string(), states.join(", "));
        if let Some(next) = next(kind, now) {
            let _ = writeln!(text, "{:KIND$}  {next}", "");
        }
    }
    text
}

/// Which certificate of a kind expires next, and who renews it.
fn next(kind: &CertificateKindSummary, now: Timestamp) -> Option<String> {
    let next = kind.next.as_ref()?;
    let renewal = match (kind.renewed_by, next.renew_at) {
        (Some(CertificateRenewer::Machine), _) => "renewed by its machine".to_owned(),
        (Some(CertificateRenewer::ControlPlane), Some(at)) if at <= now => {
            "its renewal by the control plane is due".to_owned()
        }
        (Some(CertificateRenewer::ControlPlane), Some(at)) => {
            format!("renewed by the control plane {}", relative(at, now))
        }
        _ => "not renewed".to_owned(),
    };
    Some(format!("next: {} expires {}; {renewal}", next.name, relative(next.not_after, now)))
}
