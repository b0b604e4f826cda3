//! `docs/glossary.md`: each term names code that exists, and no type has a banned name.

use std::collections::BTreeSet;

use fs_err as fs;

use crate::files::rust_files;
use crate::tables::tables;
use crate::workspace::root;

/// Types with banned names that are still to be renamed. The list only shrinks.
const TO_BE_RENAMED: [&str; 0] = [];

/// The rows of the glossary: term, meaning, code, equivalents, banned words.
fn terms() -> Vec<[String; 5]> {
    let rows = tables("docs/glossary.md").into_iter().flatten();
    let rows = rows
        .filter(|row| row.first().is_some_and(|term| term != "Term" && !term.starts_with("--")));
    let terms: Vec<[String; 5]> = rows.map(|row| row.try_into().unwrap()).collect();
    assert!(terms.len() > 50, "{} terms", terms.len());
    terms
}

/// The texts between backticks.
fn quoted(cell: &str) -> impl Iterator<Item = &str> {
    cell.split('`').skip(1).step_by(2)
}

#[test]
fn glossary_names_code_that_exists() {
    let mut missing = Vec::new();
    for [term, _, code, _, _] in terms() {
        let (paths, names): (Vec<_>, Vec<_>) = quoted(&code).partition(|one| one.contains('/'));
        let mut text = String::new();
        for path in &paths {
            let path = root().join(path);
            if path.is_file() {
                text.push_str(&fs::read_to_string(path).unwrap());
            } else if !path.is_dir() {
                missing.push(format!("{term}: {}", path.display()));
            }
        }
        let is_missing = |name: &&&str| {
            let last = name.rsplit("::").next().unwrap_or(name);
            !text.is_empty() && !text.contains(last)
        };
        missing.extend(names.iter().filter(is_missing).map(|name| format!("{term}: `{name}`")));
    }
    assert!(missing.is_empty(), "{missing:#?}");
}

/// The words and phrases that must not stand for a term, in lower case.
pub(crate) fn banned_words() -> BTreeSet<String> {
    let terms = terms();
    let words = terms.iter().flat_map(|[.., words]| words.split(','));
    let words = words.map(|word| word.trim().to_lowercase());
    words.filter(|word| word.starts_with(char::is_alphabetic)).collect()
}

#[test]
fn type_names_are_not_banned_words() {
    let banned: BTreeSet<String> = banned_words().iter().map(|words| camel_case(words)).collect();
    let mut found = BTreeSet::new();
    for file in rust_files() {
        let text = fs::read_to_string(&file).unwrap();
        found.extend(
            text.lines()
                .filter_map(type_name)
                .filter(|name| banned.contains(*name))
                .map(str::to_owned),
        );
    }
    let expected: BTreeSet<String> = TO_BE_RENAMED.map(str::to_owned).into();
    let new: Vec<_> = found.difference(&expected).collect();
    assert!(new.is_empty(), "docs/glossary.md has other words for these: {new:?}");
    let renamed: Vec<_> = expected.difference(&found).collect();
    assert!(renamed.is_empty(), "remove these from `TO_BE_RENAMED`: {renamed:?}");
}

/// The name of the type that a line defines.
pub(crate) fn type_name(line: &str) -> Option<&str> {
    let line = line.trim_start();
    let line = match line.strip_prefix("pub") {
        Some(rest) if rest.starts_with('(') => rest.split_once(") ")?.1,
        Some(rest) => rest.trim_start(),
        None => line,
    };
    let mut words = line.split(|letter: char| !letter.is_alphanumeric() && letter != '_');
    let is_type = matches!(words.next()?, "struct" | "enum" | "trait" | "type");
    words.next().filter(|_| is_type)
}

fn camel_case(words: &str) -> String {
    let words = words.split(|letter: char| !letter.is_alphanumeric());
    words
        .map(|word| {
            let mut letters = word.chars();
            letters
                .next()
                .map_or_else(String::new, |first| first.to_uppercase().chain(letters).collect())
        })
        .collect()
}
