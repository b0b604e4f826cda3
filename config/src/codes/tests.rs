use std::collections::BTreeSet;
use std::path::Path;

use super::ALL;
use crate::{Document, load_documents};

#[test]
fn every_code_has_its_page_and_every_page_its_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/errors");
    // Codes from 0400 on belong to other crates; `tests/cli/codes.rs` sees them all.
    let pages: BTreeSet<String> = fs_err::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().into_string().unwrap().strip_suffix(".md").map(str::to_owned)
        })
        .filter(|page| page.starts_with("IM") && page.as_str() < "IM0400")
        .collect();
    let codes: BTreeSet<String> = ALL.iter().map(ToString::to_string).collect();
    assert_eq!(codes, pages);
}

#[test]
fn a_page_is_titled_by_its_code_and_shows_a_bad_and_a_mended_example() {
    // What Envoy refuses and the loader does not is a mistake of ours: there is no example of it.
    for code in ALL.into_iter().filter(|code| *code != super::REFUSED_BY_ENVOY) {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/errors/{code}.md"));
        let text = fs_err::read_to_string(page).unwrap();
        assert!(text.starts_with(&format!("# {code}: ")), "{code}");
        assert_eq!(text.matches("\n```toml\n").count(), 2, "{code}");
    }
}

#[test]
fn the_bad_example_of_a_page_has_its_code_and_the_mended_one_has_not() {
    // An example is text, and what IM0107 is about is not.
    let without = [super::UNREADABLE_FILE, super::REFUSED_BY_ENVOY];
    for code in ALL.into_iter().filter(|code| !without.contains(code)) {
        let page = Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../docs/errors/{code}.md"));
        let text = fs_err::read_to_string(page).unwrap();
        let has_code = text.split("```toml\n").skip(1).map(|part| {
            let example = part.split("```").next().unwrap();
            let loaded = load_documents([Document::new("example.toml", example)]);
            loaded.findings.iter().any(|finding| finding.code == code)
        });
        assert_eq!(has_code.collect::<Vec<_>>(), [true, false], "{code}");
    }
}

#[test]
fn codes_are_in_order_and_differ() {
    assert!(ALL.is_sorted_by(|a, b| a < b));
}
