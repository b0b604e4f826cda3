//! The metric of active findings, by code, severity and silence. Its labels are bounded by the codes.

use super::families::Families;
use crate::findings::FindingCounts;

/// Encodes the counts of active findings.
pub(super) fn encode(
    families: &mut Families<'_>,
    counts: &FindingCounts,
) -> Result<(), std::fmt::Error> {
    let help = "Active findings of the mesh, by code and severity, and whether they are silenced";
    let labels = ["code", "severity", "silenced"];
    let samples = counts.iter().map(|((code, severity, is_silenced), count)| {
        let silenced = if *is_silenced { "true" } else { "false" };
        ([&**code, &**severity, silenced], *count)
    });
    families.gauges("findings", help, labels, samples)
}
