//! The examples of docs/reference/policy are cases, or parts of their files: the golden tests compile them,
//! and a real Envoy accepts the result.

use std::path::{Path, PathBuf};

use fs_err as fs;

#[test]
fn every_reference_example_is_part_of_a_golden_case() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let mut policies = Vec::new();
    for case in files(&tests.join("golden/cases")) {
        let files = files(&case.join("policy")).into_iter().filter(|path| path.is_file());
        policies.extend(files.map(|path| fs::read_to_string(path).unwrap()));
    }
    let mut count = 0;
    for page in files(&tests.join("../docs/reference/policy")) {
        let text = fs::read_to_string(&page).unwrap();
        let examples =
            text.split("```toml\n").skip(1).map(|part| part.split("```").next().unwrap());
        // A schema line for editors is no policy.
        for example in examples.filter(|example| !example.starts_with("#:schema")) {
            let is_in_a_case = policies.iter().any(|policy| policy.contains(example));
            assert!(is_in_a_case, "{} has an example in no case:\n{example}", page.display());
            count += 1;
        }
    }
    assert!(count > 20, "only {count} examples found");
}

fn files(folder: &Path) -> Vec<PathBuf> {
    fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path()).collect()
}
