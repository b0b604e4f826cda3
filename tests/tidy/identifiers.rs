//! Identifiers of shipped code, and names of its files: no part of one is a banned word of docs/glossary.md.

use std::collections::BTreeSet;

use crate::glossary::banned_words;
use crate::source::shipped_sources;

/// Names of the standard library: methods of `VecDeque`, and a variant of the entries of maps.
const STANDARD_LIBRARY: [&str; 5] = ["Vacant", "front", "front_mut", "pop_front", "push_front"];

#[test]
fn identifiers_have_no_banned_word() {
    let banned: Vec<String> =
        banned_words().iter().map(|words| format!("_{}_", words.replace(' ', "_"))).collect();
    let mut found = BTreeSet::new();
    for (path, text) in shipped_sources() {
        let modules = path.with_extension("").to_string_lossy().into_owned();
        for name in identifiers(&modules).chain(identifiers(&text)) {
            let parts = snake_case(name);
            let is_banned = banned.iter().any(|words| parts.contains(words.as_str()));
            if is_banned && !STANDARD_LIBRARY.contains(&name) {
                found.insert(format!("{}: `{name}`", path.display()));
            }
        }
    }
    assert!(found.is_empty(), "docs/glossary.md has other words for these: {found:#?}");
}

/// The words of source outside comments and string literals. The lines of a long literal count as code:
/// banned words must not be in messages either.
fn identifiers(source: &str) -> impl Iterator<Item = &str> {
    let lines = source.lines().map(|line| line.split("//").next().unwrap_or_default());
    let code = lines.flat_map(|line| line.split('"').step_by(2));
    code.flat_map(|code| code.split(|letter: char| !letter.is_alphanumeric() && letter != '_'))
}

/// A name in `snake_case`, with an underscore before and after it.
fn snake_case(name: &str) -> String {
    let mut snake = "_".to_owned();
    let mut was_small = false;
    for letter in name.chars() {
        if letter.is_uppercase() && was_small {
            snake.push('_');
        }
        was_small = letter.is_lowercase() || letter.is_numeric();
        snake.extend(letter.to_lowercase());
    }
    snake + "_"
}

#[test]
fn identifiers_are_read_without_comments_and_literals() {
    let source = "let is_one = f(\"two\", Three); // four";
    let names: Vec<_> = identifiers(source).filter(|name| !name.is_empty()).collect();
    assert_eq!(names, ["let", "is_one", "f", "Three"]);
}

#[test]
fn names_of_both_cases_have_the_same_parts() {
    for name in ["was_let_in", "WasLetIn", "WAS_LET_IN"] {
        assert_eq!(snake_case(name), "_was_let_in_");
    }
}
