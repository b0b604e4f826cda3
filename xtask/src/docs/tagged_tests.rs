//! The tests with a tag, found in the sources line by line.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

use anyhow::{Context, ensure};

use super::tag::{Note, Rule, Tag};

#[cfg(test)]
mod tests;

/// The folders with tagged tests, and how the pages abbreviate them.
const PLACES: [(&str, &str); 12] = [
    ("scenarios", "xds/server/src/scenarios"),
    ("delta", "xds/server/src/delta/tests"),
    ("sotw", "xds/server/src/sotw/tests"),
    ("server", "xds/server/src"),
    ("wire", "xds/wire/src"),
    ("sim", "tests/sim"),
    ("it", "tests/it"),
    ("envoy", "tests/envoy"),
    ("cli", "tests/cli"),
    ("cert", "cert/src/tests"),
    ("config", "config/language/src/policy/tests"),
    ("catalog", "catalog/src"),
];

/// A test that covers rules.
#[derive(Debug)]
pub(super) struct TaggedTest {
    /// The name as the pages show it: `scenarios::order::name`.
    pub(super) name: String,
    tag: Tag,
}

impl TaggedTest {
    /// The test whose comment has this first line, if that is a tag.
    pub(super) fn new(name: &str, comment: &str) -> anyhow::Result<Option<Self>> {
        let tag = Tag::parse(comment.trim_start_matches('/').trim_start())?;
        let is_valid = tag.is_none() || comment.starts_with("///");
        ensure!(is_valid, "a tag belongs in a doc comment (`///`): {comment}");
        Ok(tag.map(|tag| Self { name: name.to_owned(), tag }))
    }

    pub(super) fn rules(&self) -> &[Rule] {
        &self.tag.rules
    }

    /// Whether the test covers one variant only: its tag, folder, file or name shows which.
    pub(super) fn is_only_of(&self, variant: Note) -> bool {
        let word = if variant == Note::Delta { "delta" } else { "sotw" };
        self.tag.note == Some(variant)
            || self.name.split("::").any(|part| part == word)
            || self.name.rsplit("::").next().is_some_and(|function| {
                function.strip_prefix(word).is_some_and(|rest| rest.starts_with('_'))
            })
    }

    pub(super) fn has_bystander(&self) -> bool {
        self.tag.note == Some(Note::Bystander)
    }
}

/// All tagged tests, in the order of the places, then of the files.
pub(super) fn read(root: &Path) -> anyhow::Result<Vec<TaggedTest>> {
    let mut tests = Vec::new();
    for (prefix, folder) in PLACES {
        let mut files = Vec::new();
        walk(root, Path::new(folder), &mut files)?;
        files.sort();
        for file in files {
            let text = fs_err::read_to_string(root.join(&file))?;
            let modules = file.strip_prefix(folder)?.with_extension("");
            let modules: Vec<_> = modules.iter().map(|part| part.to_string_lossy()).collect();
            for (function, comment) in test_functions(&text) {
                let name = format!("{prefix}::{}::{function}", modules.join("::"));
                let test = TaggedTest::new(&name, comment);
                tests.extend(test.with_context(|| file.display().to_string())?);
            }
        }
    }
    Ok(tests)
}

/// Finds the Rust files in a folder and its subfolders, except those that are a place of their own.
fn walk(root: &Path, folder: &Path, files: &mut Vec<PathBuf>) -> anyhow::Result<()> {
    for entry in fs_err::read_dir(root.join(folder))? {
        let entry = entry?;
        let path = folder.join(entry.file_name());
        if entry.file_type()?.is_dir() {
            if PLACES.iter().all(|(_, place)| path != Path::new(place)) {
                walk(root, &path, files)?;
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
    Ok(())
}

/// The test functions of a file and its scenarios (`in_both_variants!`), each with the first line
/// of its comment.
pub(crate) fn test_functions(text: &str) -> Vec<(&str, &str)> {
    let list = text.split_once("in_both_variants! {").and_then(|(_, rest)| rest.split_once('}'));
    let scenarios: BTreeSet<_> =
        list.into_iter().flat_map(|(list, _)| list.split(',').map(str::trim)).collect();
    let mut functions = Vec::new();
    let (mut comment, mut is_test) = (None, false);
    for line in text.lines().map(str::trim) {
        if line.starts_with("//") {
            comment.get_or_insert(line);
        } else if line.starts_with("#[") {
            is_test |= line.starts_with("#[test]") || line.starts_with("#[tokio::test");
        } else {
            let function = line.strip_prefix("async ").unwrap_or(line).strip_prefix("fn ");
            let name = function.and_then(|rest| rest.split(['(', '<']).next());
            if let Some(name) = name.filter(|name| is_test || scenarios.contains(name)) {
                functions.push((name, comment.unwrap_or_default()));
            }
            (comment, is_test) = (None, false);
        }
    }
    functions
}
