//! `mode`, which settings have for the mesh, and policy for a namespace or a service.

use ironmesh_catalog::Mode;

use crate::codes;
use crate::suggest::{closest, did_you_mean};
use crate::table::{FindingReported, Value, list};

/// Reads a mode.
pub fn read(value: Value<'_>) -> Result<Mode, FindingReported> {
    let text = value.string()?;
    if let Some((_, mode)) = Mode::ALL.iter().find(|(word, _)| *word == text) {
        return Ok(*mode);
    }
    let words = Mode::ALL.map(|(word, _)| word);
    let served = format!("the modes are {}", list(&words));
    let finding = value.error(codes::INVALID_VALUE, format!("there is no mode `{text}`"));
    let near = closest(&text.to_lowercase(), words).map(did_you_mean);
    Err(value.report(finding.label("unknown mode").help(near.unwrap_or(served))))
}
