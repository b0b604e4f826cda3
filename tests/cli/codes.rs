//! The pages of the codes IM0401 to IM0599 and from IM0700 on, which several crates share. The
//! configuration crate tests the others.

use std::collections::BTreeSet;
use std::path::{Path, PathBuf};

#[test]
fn finding_codes_outside_config_match_their_pages() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut codes = Vec::new();
    for entry in fs_err::read_dir(&root).unwrap() {
        let name = entry.unwrap().file_name().into_string().unwrap();
        // Of these, only the configuration has codes, its own.
        if !name.starts_with('.') && !["config", "target", "tests"].contains(&name.as_str()) {
            for source in sources(&root.join(name)) {
                codes.extend(defined_in(&fs_err::read_to_string(source).unwrap()));
            }
        }
    }
    let pages: BTreeSet<String> = fs_err::read_dir(root.join("docs/errors"))
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().into_string().unwrap().strip_suffix(".md").map(str::to_owned)
        })
        .filter(|page| is_of_several(page))
        .collect();
    // Codes of several crates may be about policy, too.
    codes.retain(|code| is_of_several(code));
    let distinct: BTreeSet<String> = codes.iter().cloned().collect();
    assert!(distinct.contains("IM0401"), "the search finds no code: {codes:?}");
    assert_eq!(distinct.len(), codes.len(), "a code means two things: {codes:?}");
    assert_eq!(distinct, pages);
    for page in pages {
        let text = fs_err::read_to_string(root.join(format!("docs/errors/{page}.md"))).unwrap();
        assert!(text.starts_with(&format!("# {page}: ")), "{page}");
    }
}

/// Whether a code is of the shared ranges.
fn is_of_several(code: &str) -> bool {
    code.starts_with("IM") && (("IM0400".."IM0600").contains(&code) || code >= "IM0700")
}

/// The sources below `folder`, without tests.
fn sources(folder: &Path) -> Vec<PathBuf> {
    if !folder.is_dir() {
        return Vec::new();
    }
    let paths = fs_err::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let mut found = Vec::new();
    for path in paths {
        if path.is_dir() && !path.ends_with("tests") {
            found.extend(sources(&path));
        } else if path.extension().is_some_and(|kind| kind == "rs") && !path.ends_with("tests.rs") {
            found.push(path);
        }
    }
    found
}

/// The codes that a source has as numbers: `Code(401)`, and not `StatusCode(401)`.
fn defined_in(text: &str) -> Vec<String> {
    let mut codes = Vec::new();
    for line in text.lines().filter(|line| !line.trim_start().starts_with("//")) {
        for (at, start) in line.match_indices("Code(") {
            let is_other = line[..at].ends_with(|before: char| before.is_alphanumeric());
            let number = line[at + start.len()..].split(')').next().unwrap();
            if let (false, Ok(number)) = (is_other, number.parse::<u16>()) {
                codes.push(format!("IM{number:04}"));
            }
        }
    }
    codes
}
