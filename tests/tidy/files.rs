//! The form of files: headers, lengths and names.

use std::path::{Path, PathBuf};

use crate::workspace::{metadata, root};

/// No file is longer, and half of the files have at most `MEDIAN_LINES`.
const MOST_LINES: usize = 600;
const MEDIAN_LINES: usize = 150;

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
