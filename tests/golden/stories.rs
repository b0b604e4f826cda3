//! Kept inputs of the fuzzer on policy, and its initial corpus (`fuzz/`).

use std::path::Path;

use fs_err as fs;

#[path = "../../fuzz/targets/policy/story.rs"]
mod story;

#[test]
fn fuzz_corpus_policies_keep_the_invariants() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../fuzz/corpus/policy");
    let entries = fs::read_dir(&folder).unwrap();
    let count = entries.map(|entry| story::tell(&fs::read(entry.unwrap().path()).unwrap())).count();
    assert!(count > 20, "{count} inputs in {}", folder.display());
}
