use std::collections::BTreeSet;
use std::path::Path;

use ironmesh_catalog::Code;

use super::ALL;
use crate::{Document, load_documents};

#[test]
fn every_code_has_a_page_and_every_page_a_code() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../docs/errors");
    // Codes of 0400 to 0599 and from 0700 on belong to other crates, and so do these two; `tests/cli/codes.rs`
    // sees them all.
    let others = ["IM0661", "IM0664"];
    let pages: BTreeSet<String> = fs_err::read_dir(&folder)
        .unwrap()
        .filter_map(|entry| {
            entry.unwrap().file_name().into_string().unwrap().strip_suffix(".md").map(str::to_owned)
        })
        .filter(|page| page.starts_with("IM") && page.as_str() < "IM0700")
        .filter(|page| !("IM0400".."IM0600").contains(&page.as_str()))
        .filter(|page| !others.contains(&page.as_str()))
        .collect();
    let codes: BTreeSet<String> = ALL.iter().map(ToString::to_string).collect();
    assert_eq!(codes, pages);
}

#[test]
fn page_has_its_code_as_title_and_a_bad_and_a_fixed_example() {
    // No document causes a damaged push. A policy that Envoy rejects and the loader accepts is a defect of
    // the loader. A held removal needs an earlier policy, and a link needs a file system.
    let without =
        [super::DAMAGED_PUSH, super::REJECTED_BY_ENVOY, super::REMOVAL_HELD, super::LINK_OUTSIDE];
    for code in ALL.into_iter().filter(|code| !without.contains(code)) {
        let page =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/errors/{code}.md"));
        let text = fs_err::read_to_string(page).unwrap();
        assert!(text.starts_with(&format!("# {code}: ")), "{code}");
        assert_eq!(text.matches(&format!("\n{}", fence(code))).count(), 2, "{code}");
    }
}

#[test]
fn bad_example_of_a_page_has_its_code_and_the_fixed_one_has_not() {
    // An example is text of some lines, and what these are about is not.
    let others = [
        super::UNREADABLE_FILE,
        super::DAMAGED_PUSH,
        super::TOO_LARGE,
        super::TOO_MANY_FINDINGS,
        super::EMPTY_FOLDER,
        super::IGNORED_FILE,
        super::CHANGING_FILE,
        super::REMOVAL_HELD,
        super::LINK_OUTSIDE,
        super::REJECTED_BY_ENVOY,
    ];
    for code in ALL.into_iter().filter(|code| !others.contains(code)) {
        let page =
            Path::new(env!("CARGO_MANIFEST_DIR")).join(format!("../../docs/errors/{code}.md"));
        let text = fs_err::read_to_string(page).unwrap();
        let (language, fence) = (language(code), fence(code));
        let has_code = text.split(&fence).skip(1).map(|part| {
            let example = part.split("```").next().unwrap();
            let loaded = load_documents([Document::new(format!("example.{language}"), example)]);
            loaded.findings.iter().any(|finding| finding.code == code)
        });
        assert_eq!(has_code.collect::<Vec<_>>(), [true, false], "{code}");
    }
}

/// What the examples of a page are written in.
fn language(code: Code) -> &'static str {
    if [super::YAML_SYNTAX, super::UNKNOWN_RESOURCE].contains(&code) { "yaml" } else { "toml" }
}

fn fence(code: Code) -> String {
    format!("```{}\n", language(code))
}

#[test]
fn codes_are_sorted_and_unique() {
    assert!(ALL.is_sorted_by(|a, b| a < b));
}
