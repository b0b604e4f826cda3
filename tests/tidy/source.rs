//! Rust source as text: the files of shipped crates, and the string literals in them.

use std::path::{Path, PathBuf};

use crate::files::rust_files;
use crate::workspace::root;

/// Folders whose code users never run.
const NOT_SHIPPED: [&str; 4] = ["bench", "fuzz", "tests", "xtask"];

/// The source files of crates that users run, each as its path and its text without inline tests.
pub(crate) fn shipped_sources() -> Vec<(PathBuf, String)> {
    let shipped = rust_files().into_iter().filter_map(|file| {
        let path = file.strip_prefix(root()).ok()?.to_owned();
        is_shipped(&path).then(|| (path, without_tests(&fs_err::read_to_string(&file).unwrap())))
    });
    shipped.collect()
}

fn is_shipped(path: &Path) -> bool {
    let mut parts = path.iter().map(|part| part.to_string_lossy());
    let is_test = |part: &str| part == "tests" || part == "tests.rs";
    !parts.clone().any(|part| is_test(&part))
        && !parts.next().is_some_and(|first| NOT_SHIPPED.contains(&&*first))
}

fn without_tests(text: &str) -> String {
    text.split("#[cfg(test)]\nmod tests {").next().unwrap_or_default().to_owned()
}

/// The string literals of Rust source, as written between their quotes.
pub(crate) fn string_literals(source: &str) -> Vec<&str> {
    let mut literals = Vec::new();
    let mut rest = source;
    while let Some(at) = rest.find(['"', '/', '\'']) {
        let (before, token) = rest.split_at(at);
        rest = if token.starts_with("//") {
            after(token, "\n")
        } else if token.starts_with("/*") {
            after(token, "*/")
        } else if let Some(text) = token.strip_prefix('"') {
            let hashes = before.len() - before.trim_end_matches('#').len();
            let is_raw = before.trim_end_matches('#').ends_with('r');
            let length = if is_raw {
                text.find(&format!("\"{}", "#".repeat(hashes))).unwrap()
            } else {
                escaped_length(text)
            };
            literals.push(&text[..length]);
            &text[length + 1..]
        } else {
            // A character literal may be a quote; a lifetime has no closing quote.
            ["'\"'", "'\\\"'", "'\\''"]
                .iter()
                .find_map(|literal| token.strip_prefix(literal))
                .unwrap_or_else(|| &token[1..])
        };
    }
    literals
}

fn after<'text>(text: &'text str, end: &str) -> &'text str {
    text.split_once(end).map_or("", |(_, rest)| rest)
}

/// The length up to the quote that ends a string.
fn escaped_length(text: &str) -> usize {
    let mut is_escaped = false;
    let end = text.find(|c: char| {
        let is_end = c == '"' && !is_escaped;
        is_escaped = c == '\\' && !is_escaped;
        is_end
    });
    end.unwrap()
}

#[test]
fn literals_are_found_beside_comments_and_characters() {
    let source = concat!(
        "let a = \"one \\\" two\"; // \"no\"\n/* \"no\" */ let b = '\"'; let c = r#\"three \" four\"#;\n",
        "fn d<'a>(e: &'a str) { f(\"five\", '\\'') }",
    );
    assert_eq!(string_literals(source), ["one \\\" two", "three \" four", "five"]);
}
