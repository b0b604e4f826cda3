use super::*;
use crate::docs::tagged_tests::test_functions;

#[test]
fn every_mutation_still_applies() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR")).join("..");
    let mut problems = Vec::new();
    for mutation in read().unwrap() {
        let source = fs_err::read_to_string(root.join(&mutation.file)).unwrap();
        if source.matches(&mutation.from).count() != 1 {
            problems.push(format!("not once in {}: {}", mutation.file, mutation.from));
        }
        if !exists(&root.join(mutation.package.folder).join("src"), &mutation.test) {
            problems.push(format!("no test `{}`", mutation.test));
        }
    }
    assert!(problems.is_empty(), "xtask/mutations.toml\n{}", problems.join("\n"));
}

/// Whether a test exists, in the file of its module or of the module around it. A scenario is one
/// function for both variants.
fn exists(folder: &Path, test: &str) -> bool {
    let mut modules: Vec<_> = test.split("::").collect();
    let Some(function) = modules.pop() else { return false };
    if modules.first() == Some(&"scenarios") {
        modules.retain(|module| !["delta", "sotw"].contains(module));
    }
    let is_in = |modules: &[&str]| {
        let path = folder.join(modules.join("/")).with_extension("rs");
        let text = fs_err::read_to_string(path).unwrap_or_default();
        test_functions(&text).iter().any(|(name, _)| *name == function)
    };
    is_in(&modules) || modules.split_last().is_some_and(|(_, around)| is_in(around))
}
