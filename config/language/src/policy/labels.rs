//! Labels: `{ version = "v1" }`.

use ironmesh_catalog::{Finding, Labels};

use crate::codes;
use crate::table::{FindingReported, Value};

/// The longest name or word of a label, in bytes: those of Kubernetes and Consul are shorter.
const LONGEST: usize = 512;

/// Reads at least one label; `meaning` explains in the finding what no label would mean.
pub(super) fn read(value: Value<'_>, meaning: &str) -> Result<Labels, FindingReported> {
    let table = value.table("labels")?;
    let mut labels = Vec::new();
    let mut result = Ok(());
    for (spot, word) in table.entries() {
        let name = word.key();
        if name.is_empty() || name.len() > LONGEST {
            let message = format!("the name of a label has 1 to {LONGEST} bytes");
            let finding = Finding::error(codes::INVALID_VALUE, Some(spot), message);
            result = Err(word.report(finding.label("not a label")));
        }
        match read_word(word) {
            Ok(text) => labels.push((name, text)),
            Err(reported) => result = Err(reported),
        }
    }
    if labels.is_empty() && result.is_ok() {
        let message = format!("`{}` is empty", value.key());
        let finding = value.error(codes::EMPTY_LIST, message).label("no label");
        return Err(value.report(finding.help(meaning)));
    }
    result.map(|()| labels.into_iter().collect())
}

fn read_word(word: Value<'_>) -> Result<&str, FindingReported> {
    let text = word.string()?;
    if text.len() > LONGEST {
        let message = format!("a label has at most {LONGEST} bytes");
        return Err(word.report(word.error(codes::INVALID_VALUE, message).label("too long")));
    }
    Ok(text)
}
