//! The form of files: headers, lengths and names.

use std::path::{Path, PathBuf};

use crate::workspace::{metadata, root};

/// No file is longer, and half of the files have at most `MEDIAN_LINES`.
const MOST_LINES: usize = 600;
const MEDIAN_LINES: usize = 150;

/// The most lines of the binary, without tests: it only wires and prints, and other crates do the rest.
const MOST_LINES_OF_CMD: usize = 6_000;

/// Names that do not describe the content.
const EMPTY_NAMES: &[&str] =
    &["common.rs", "helpers.rs", "misc.rs", "mod.rs", "util.rs", "utils.rs"];

/// Folders without handwritten files.
const SKIPPED_FOLDERS: &[&str] = &["target", "generated"];

#[test]
fn every_target_has_a_header_comment() {
    let metadata = metadata();
    let mut problems = Vec::new();
    for package in metadata.workspace_packages() {
        for target in &package.targets {
            let text = fs_err::read_to_string(&target.src_path).unwrap();
            let header: String = text.lines().take_while(|line| line.starts_with("//!")).collect();
            if header.len() < "//! A sentence.".len() {
                problems.push(format!("{} has no `//!` header", target.src_path));
            }
        }
    }
    assert!(problems.is_empty(), "\n{}", problems.join("\n"));
}

#[test]
fn files_are_short() {
    let mut lengths: Vec<(usize, PathBuf)> = rust_files()
        .into_iter()
        .map(|path| (fs_err::read_to_string(&path).unwrap().lines().count(), path))
        .collect();
    lengths.sort();
    let too_long: Vec<String> = lengths
        .iter()
        .filter(|(lines, _)| *lines > MOST_LINES)
        .map(|(lines, path)| format!("{}: {lines} lines, at most {MOST_LINES}", path.display()))
        .collect();
    assert!(too_long.is_empty(), "\n{}", too_long.join("\n"));
    let (median, _) = &lengths[lengths.len() / 2];
    assert!(*median <= MEDIAN_LINES, "the median file has {median} lines, at most {MEDIAN_LINES}");
}

#[test]
fn cmd_stays_small() {
    let sources = root().join("cmd/src");
    let is_test =
        |path: &PathBuf| path.ends_with("tests.rs") || path.iter().any(|folder| folder == "tests");
    let files = rust_files().into_iter().filter(|path| path.starts_with(&sources));
    let files = files.filter(|path| !is_test(&path.strip_prefix(&sources).unwrap().to_owned()));
    let lines: usize =
        files.map(|path| lines_without_tests(&fs_err::read_to_string(path).unwrap())).sum();
    assert!(lines > 1_000, "the walk found only {lines} lines");
    assert!(
        lines <= MOST_LINES_OF_CMD,
        "`cmd` has {lines} lines without tests, at most {MOST_LINES_OF_CMD}: move what neither wires nor prints"
    );
}

/// The number of lines, without `#[cfg(test)]` modules, which rustfmt ends with a brace of the same indentation.
fn lines_without_tests(text: &str) -> usize {
    let (mut count, mut lines) = (0, text.lines().peekable());
    while let Some(line) = lines.next() {
        let is_test = line.trim() == "#[cfg(test)]";
        let Some(module) = lines.next_if(|next| is_test && next.trim().starts_with("mod ")) else {
            count += 1;
            continue;
        };
        if module.ends_with('{') {
            let end = line.replace("#[cfg(test)]", "}");
            lines.by_ref().take_while(|line| *line != end).for_each(drop);
        }
    }
    count
}

#[test]
fn lines_of_test_modules_do_not_count() {
    let text = "fn a() {}\n#[cfg(test)]\nmod tests {\n    fn b() {\n    }\n}\nfn c() {}\n";
    assert_eq!(lines_without_tests(text), 2);
    assert_eq!(lines_without_tests("fn a() {}\n\n#[cfg(test)]\nmod tests;\n"), 2);
    assert_eq!(lines_without_tests("#[cfg(test)]\nuse a::b;\n"), 2);
}

#[test]
fn file_names_are_specific() {
    let bad: Vec<PathBuf> = rust_files()
        .into_iter()
        .filter(|path| EMPTY_NAMES.iter().any(|name| path.ends_with(name)))
        .collect();
    assert!(bad.is_empty(), "files with a name that describes nothing: {bad:?}");
}

#[test]
fn architecture_page_names_every_crate() {
    let page = fs_err::read_to_string(root().join("ARCHITECTURE.md")).unwrap();
    let metadata = metadata();
    let missing: Vec<&str> = metadata
        .workspace_packages()
        .into_iter()
        .map(|package| package.name.as_str())
        .filter(|name| !page.contains(&format!("`{name}`")))
        .collect();
    assert!(missing.is_empty(), "ARCHITECTURE.md does not name, in backticks: {missing:?}");
}

/// All handwritten Rust files, found by walking the folders, so that uncommitted files count as
/// well.
pub(crate) fn rust_files() -> Vec<PathBuf> {
    let mut files = Vec::new();
    walk(&root(), &mut files);
    assert!(files.len() > 20, "the walk found next to nothing: {files:?}");
    files
}

fn walk(folder: &Path, files: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(folder).unwrap() {
        let entry = entry.unwrap();
        let (path, name) = (entry.path(), entry.file_name());
        let name = name.to_string_lossy();
        if entry.file_type().unwrap().is_dir() {
            // `CARGO_TARGET_DIR` may be in the checkout under any name: Cargo marks it.
            let marked = path.join("CACHEDIR.TAG").exists();
            if !name.starts_with('.') && !marked && !SKIPPED_FOLDERS.contains(&&*name) {
                walk(&path, files);
            }
        } else if path.extension().is_some_and(|extension| extension == "rs") {
            files.push(path);
        }
    }
}
