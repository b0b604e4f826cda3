//! The words of docs/glossary.md in names and in messages: no banned word, and no public type shares its name.

use std::collections::{BTreeMap, BTreeSet};

use crate::glossary::{banned_words, type_name};
use crate::source::{shipped_sources, string_literals};

/// Names that several public types have, still to be told apart. The list only becomes shorter.
const SHARED: [&str; 0] = [];

/// These replace `etcd/src/session.rs` and `traces/src/exporter.rs` in builds without them, so they define the same types.
const ALTERNATIVES: [&str; 2] = ["etcd/src/absent.rs", "traces/src/absent.rs"];

#[test]
fn public_types_have_names_of_their_own() {
    let mut places: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for (path, text) in shipped_sources() {
        if ALTERNATIVES.iter().any(|one| path.ends_with(one)) {
            continue;
        }
        for line in text.lines().filter(|line| line.trim_start().starts_with("pub ")) {
            if let Some(name) = type_name(line) {
                places.entry(name.to_owned()).or_default().insert(path.display().to_string());
            }
        }
    }
    assert!(places.len() > 100, "{} public types", places.len());
    places.retain(|_, places| places.len() > 1);
    let shared = places.keys().map(String::as_str).collect::<BTreeSet<_>>();
    assert_eq!(shared, BTreeSet::from(SHARED), "{places:#?}");
}

#[test]
fn messages_have_no_banned_word() {
    let banned = banned_words();
    let mut found = Vec::new();
    for (path, text) in shipped_sources() {
        for literal in string_literals(&text).into_iter().filter(|literal| literal.contains(' ')) {
            let words = words(literal);
            let hits = banned.iter().filter(|one| words.contains(&format!(" {one} ")));
            found.extend(hits.map(|one| format!("{}: {one:?} in {literal:?}", path.display())));
        }
    }
    assert!(found.is_empty(), "docs/glossary.md has other words:\n{}", found.join("\n"));
}

/// The words of a text, in lower case, with a space around each. What stands in backticks or braces is a value.
fn words(text: &str) -> String {
    let mut is_value = false;
    let letters = text
        .replace("\\n", " ")
        .chars()
        .map(|c| {
            match c {
                '`' => is_value = !is_value,
                '{' => is_value = true,
                '}' => is_value = false,
                _ => {}
            }
            if c.is_alphanumeric() && !is_value || c == '\'' { c.to_ascii_lowercase() } else { ' ' }
        })
        .collect::<String>();
    format!(" {} ", letters.split_whitespace().collect::<Vec<_>>().join(" "))
}

#[test]
fn values_in_messages_are_not_words() {
    assert_eq!(words("The proxy `is told` {told} of\\n it"), " the proxy of it ");
}
