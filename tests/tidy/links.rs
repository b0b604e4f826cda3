//! Relative links in the documentation lead to files, and to headings, that exist.

use std::collections::{BTreeMap, BTreeSet};
use std::path::{Path, PathBuf};

use fs_err as fs;

use crate::workspace::root;

/// The pages outside of `docs/`.
const PAGES: [&str; 3] = ["README.md", "ARCHITECTURE.md", "CONTRIBUTING.md"];

#[test]
fn links_in_documentation_lead_to_files_and_headings() {
    let texts: BTreeMap<PathBuf, String> = documentation()
        .into_iter()
        .map(|page| (page.canonicalize().unwrap(), fs::read_to_string(&page).unwrap()))
        .collect();
    let mut dead = Vec::new();
    let mut count = 0;
    for (page, text) in &texts {
        for link in links(text).filter(|link| !link.contains("://") && !link.starts_with("mailto:"))
        {
            count += 1;
            if !leads_somewhere(page, link, &texts) {
                dead.push(format!("{}: {link}", page.display()));
            }
        }
    }
    assert!(count > 300, "only {count} links found");
    assert!(dead.is_empty(), "dead links:\n{}", dead.join("\n"));
}

/// All pages of the documentation.
pub(crate) fn documentation() -> Vec<PathBuf> {
    let mut pages: Vec<PathBuf> = PAGES.iter().map(|page| root().join(page)).collect();
    collect_pages(&root().join("docs"), &mut pages);
    pages
}

fn leads_somewhere(page: &Path, link: &str, texts: &BTreeMap<PathBuf, String>) -> bool {
    let (path, anchor) = link.split_once('#').map_or((link, None), |(path, a)| (path, Some(a)));
    let target = if path.is_empty() { page.to_owned() } else { page.parent().unwrap().join(path) };
    let Ok(target) = target.canonicalize() else { return false };
    match (anchor, texts.get(&target)) {
        (Some(anchor), Some(text)) => anchors(text).contains(anchor),
        (Some(_), None) => false,
        (None, _) => true,
    }
}

/// The targets of the links of a page: what stands between `](` and `)`, except in code.
fn links(text: &str) -> impl Iterator<Item = &str> {
    prose(text).flat_map(|line| {
        let parts = line.split("](").skip(1);
        parts.filter_map(|part| part.split_once(')').map(|(target, _)| target))
    })
}

/// The anchors of a page's headings, as GitHub makes them: of equal ones, the second ends with `-1`.
fn anchors(text: &str) -> BTreeSet<String> {
    let mut anchors = BTreeSet::new();
    let mut counts: BTreeMap<String, usize> = BTreeMap::new();
    for line in prose(text).filter(|line| line.starts_with('#')) {
        let Some(heading) = line.trim_start_matches('#').strip_prefix(' ') else { continue };
        let heading = heading.trim().to_lowercase();
        let kept = heading.replace(|c: char| !c.is_alphanumeric() && !" -_".contains(c), "");
        let anchor = kept.replace(' ', "-");
        let count = counts.entry(anchor.clone()).or_default();
        anchors.insert(if *count == 0 { anchor } else { format!("{anchor}-{count}") });
        *count += 1;
    }
    anchors
}

/// The lines of a page outside of code blocks.
fn prose(text: &str) -> impl Iterator<Item = &str> {
    let mut is_code = false;
    text.lines().filter(move |line| {
        let is_fence = line.trim_start().starts_with("```");
        is_code ^= is_fence;
        !is_code && !is_fence
    })
}

fn collect_pages(folder: &Path, pages: &mut Vec<PathBuf>) {
    for entry in fs::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            collect_pages(&path, pages);
        } else if path.extension().is_some_and(|extension| extension == "md") {
            pages.push(path);
        }
    }
}
