//! The metrics of traces: what becomes of their spans.

use super::families::Families;
use crate::change_traces::ChangeTraces;

/// Writes zeros where no traces are exported.
pub(super) fn encode(
    families: &mut Families<'_>,
    traces: Option<&ChangeTraces>,
) -> Result<(), std::fmt::Error> {
    let counts = traces.map_or_else(Default::default, ChangeTraces::counts);
    let samples =
        [("exported", counts.exported), ("lost", counts.lost), ("omitted", counts.omitted)];
    let help = "Spans of traces by what became of them";
    families.counters("trace_spans", help, ["outcome"], samples.map(|(o, count)| ([o], count)))
}
