//! Makes what the documentation has from the policy language's schema: `docs/reference/policy.schema.json`,
//! and the tables of keys in `docs/reference/policy.md`, whose prose is written by hand. The test below
//! fails when either is no longer what the schema says.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use anyhow::{Context, bail};
use ironmesh_config_language::policy::log_operators;
use ironmesh_config_language::{PolicyKind, schema};

/// What stands before the keys of a kind, round its name, and behind them.
const BEGIN: [&str; 2] = ["<!-- keys of ", ": `cargo xtask docs` -->"];
const END: &str = "<!-- end of keys -->";

/// What stands before the command operators of access logs.
const OPERATORS: &str = "<!-- operators of access logs -->";

pub(crate) fn write() -> anyhow::Result<()> {
    for (path, text) in made()? {
        fs_err::write(path, text)?;
    }
    Ok(())
}

/// The files that are made, as they should be.
fn made() -> anyhow::Result<Vec<(PathBuf, String)>> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference");
    let page = folder.join("policy.md");
    let text = with_operators(&with_keys(&fs_err::read_to_string(&page)?)?)?;
    let schema = format!("{:#}\n", schema::json_schema());
    Ok(vec![(page, text), (folder.join("policy.schema.json"), schema)])
}

/// The page with the operators of access logs behind their mark, on one line.
fn with_operators(page: &str) -> anyhow::Result<String> {
    let (before, after) = page.split_once(OPERATORS).context("no place for the operators")?;
    let (_, after) = after.split_once('\n').context("no line behind the mark of operators")?;
    let operators: Vec<String> = log_operators().map(|one| format!("`{one}`")).collect();
    // (What was there before stands on one line and begins with an operator.)
    let after = match after.split_once('\n') {
        Some((line, rest)) if line.starts_with("`%") => rest,
        _ => after,
    };
    Ok(format!("{before}{OPERATORS}\n{}.\n{after}", operators.join(", ")))
}

/// The page with what the schema says of each kind between the kind's marks.
fn with_keys(page: &str) -> anyhow::Result<String> {
    let mut made = String::new();
    let mut rest = page;
    let mut described = Vec::new();
    while let Some((before, after)) = rest.split_once(BEGIN[0]) {
        let (kind, after) = after.split_once(BEGIN[1]).context("a mark without an end")?;
        let (_, after) = after.split_once(END).with_context(|| format!("no `{END}`: {kind}"))?;
        let keys = schema::reference(kind).with_context(|| format!("no such kind: {kind}"))?;
        write!(made, "{before}{}{kind}{}\n{keys}{END}", BEGIN[0], BEGIN[1])?;
        described.push(kind);
        rest = after;
    }
    for kind in PolicyKind::keys() {
        if !described.contains(&kind) {
            bail!("docs/reference/policy.md has no place for the keys of `{kind}`");
        }
    }
    Ok(made + rest)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn generated_reference_and_json_schema_are_current() {
        for (path, text) in made().unwrap() {
            let kept = fs_err::read_to_string(&path).unwrap();
            let path = path.display();
            assert!(kept == text, "{path} is not current: run `cargo xtask docs`, and read it");
        }
    }
}
