//! The examples of docs/reference/policy.md are cases, or parts of their files: what it shows is compiled
//! as expected, and a real Envoy accepts it.

use std::path::Path;

use fs_err as fs;

#[test]
fn every_reference_example_is_part_of_a_golden_case() {
    let tests = Path::new(env!("CARGO_MANIFEST_DIR"));
    let page = fs::read_to_string(tests.join("../docs/reference/policy.md")).unwrap();
    let mut policies = Vec::new();
    for case in fs::read_dir(tests.join("golden/cases")).unwrap() {
        for file in fs::read_dir(case.unwrap().path().join("policy")).unwrap() {
            let path = file.unwrap().path();
            if path.is_file() {
                policies.push(fs::read_to_string(path).unwrap());
            }
        }
    }
    let examples: Vec<_> =
        page.split("```toml\n").skip(1).map(|part| part.split("```").next().unwrap()).collect();
    assert!(examples.len() >= 5, "where are the examples? {}", examples.len());
    // (A line for editors is no policy.)
    for example in examples.into_iter().filter(|example| !example.starts_with("#:schema")) {
        assert!(policies.iter().any(|policy| policy.contains(example)), "in no case:\n{example}");
    }
}
