//! Generates documentation from the schema of the policy language: `docs/reference/policy.schema.json`, and the tables of
//! keys in `docs/reference/policy.md`, whose prose is written by hand.
//!
//! The test below fails if either file differs from the schema.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ironmesh_config::policy::log_operators;
use ironmesh_config::schema;

/// The mark before the keys of a kind, in two parts around its name. [`END`] follows the keys.
const BEGIN: [&str; 2] = ["<!-- keys of ", ": `cargo xtask docs` -->"];
/// The mark after the keys of a kind.
const END: &str = "<!-- end of keys -->";

/// The mark before the command operators of access logs.
const OPERATORS: &str = "<!-- operators of access logs -->";

/// Writes the generated files.
pub(crate) fn write() -> anyhow::Result<()> {
    for (path, text) in generated()? {
        fs_err::write(path, text)?;
    }
    Ok(())
}

/// The paths and contents of the generated files.
fn generated() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let page = folder.join("policy.md");
    let text = with_operators(&with_keys(&fs_err::read_to_string(&page)?)?)?;
    let schema = format!("{:#}\n", schema::json_schema());
    Ok(vec![(page, text), (folder.join("policy.schema.json"), schema)])
}

/// The page with the operators of access logs on one line after their mark.
fn with_operators(page: &str) -> anyhow::Result<String> {
    let (before, after) =
        page.split_once(OPERATORS).context("the page has no mark for the operators")?;
    let (_, after) = after.split_once('\n').context("no line follows the mark of the operators")?;
    let operators: Vec<String> = log_operators().map(|one| format!("`{one}`")).collect();
    // The previous list is one line that begins with an operator.
    let after = match after.split_once('\n') {
        Some((line, rest)) if line.starts_with("`%") => rest,
        _ => after,
    };
    Ok(format!("{before}{OPERATORS}\n{}.\n{after}", operators.join(", ")))
}

/// The page with the schema's keys of each kind between the kind's marks.
fn with_keys(page: &str) -> anyhow::Result<String> {
    let mut page_text = String::new();
    let mut rest = page;
    let mut described = Vec::new();
    while let Some((before, after)) = rest.split_once(BEGIN[0]) {
        let (kind, after) = after.split_once(BEGIN[1]).context("a mark without an end")?;
        let (_, after) = after.split_once(END).with_context(|| format!("no `{END}`: {kind}"))?;
        let keys = schema::reference(kind).with_context(|| format!("no such kind: {kind}"))?;
        write!(page_text, "{before}{}{kind}{}\n{keys}{END}", BEGIN[0], BEGIN[1])?;
        described.push(kind);
        rest = after;
    }
    for kind in schema::KINDS.map(|kind| kind.key) {
        if !described.contains(&kind) {
            bail!("docs/reference/policy.md has no mark for the keys of `{kind}`");
        }
    }
    Ok(page_text + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_reference_and_json_schema_are_current() {
        for (path, text) in generated().unwrap() {
            let kept = fs_err::read_to_string(&path).unwrap();
            let path = path.display();
            assert!(kept == text, "{path} is not current: run `cargo xtask docs`, and read it");
        }
    }
}
