//! `ironmesh policy check`.

use std::path::Path;

use ironmesh_tests::programs::require_envoy;
use serde_json::json;

use crate::command::Workspace;

const GOOD: &str = r#"
[[service]]
name = "store"
ports = [{ port = 80, protocol = "http" }]
"#;

/// Three mistakes in two files.
const BAD_SPLIT: &str = r#"
[[traffic_split]]
name = "halves"
service = "stor"
backends = [{ service = "store", weight = 0 }]
"#;
const BAD_KEY: &str = r#"
[[service]]
name = "buyer"
protcol = "http"
"#;

#[test]
fn valid_policy_is_summarized_and_exits_0() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write("policy/a.toml", GOOD);
    let run = workspace.run(&["policy", "check", "policy"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("1 service, 0 traffic targets"), "{run:?}");
    assert!(run.stdout.ends_with("\nno findings in 1 file\n"), "{run:?}");
    assert_eq!(run.stderr, "");
}

#[test]
fn empty_folder_is_an_error_unless_it_holds_a_comment() {
    let Some(workspace) = Workspace::open() else { return };
    fs_err::create_dir(workspace.path().join("policy")).unwrap();
    let run = workspace.run(&["policy", "check", "policy"]);
    assert_eq!(run.code, 3, "{run:?}");
    assert!(
        run.stdout.contains("error[IM0115]: the policy folder holds no policy file"),
        "{run:?}"
    );
    workspace.write("policy/shop.tml", GOOD);
    for command in [&["check"][..], &["plan", "--offline", "policy"]] {
        let run = workspace.run(&[&["policy"], command, &["policy"]].concat());
        assert_eq!(run.code, 3, "{run:?}");
        for part in ["error[IM0115]", "warning[IM0116]: 1 file is not read as policy: `shop.tml`"] {
            assert!(run.stdout.contains(part), "no {part:?} in {run:?}");
        }
    }
    workspace.write("policy/none.toml", "# Nothing is allowed yet.\n");
    let run = workspace.run(&["policy", "check", "policy"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("warning[IM0116]") && !run.stdout.contains("IM0115"), "{run:?}");
}

#[test]
fn all_errors_of_all_files_are_annotated_and_exit_3() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write("policy/a.toml", GOOD);
    workspace.write("policy/split.toml", BAD_SPLIT);
    workspace.write("policy/team/key.toml", BAD_KEY);
    let run = workspace.run(&["policy", "check", "policy"]);
    assert_eq!(run.code, 3, "{run:?}");
    for part in [
        "error[IM0201]",
        "did you mean `store`",
        "split.toml:4:",
        "error[IM0301]",
        "error[IM0102]",
        "team/key.toml:4:1",
        "protcol",
    ] {
        assert!(run.stdout.contains(part), "no {part:?} in\n{}", run.stdout);
    }
    let end = "\nmore about these: `ironmesh explain IM0102`, `ironmesh explain IM0201`, \
               `ironmesh explain IM0301`\n3 errors, 0 warnings in 2 of 3 files\n";
    assert!(run.stdout.ends_with(end), "{}", run.stdout);
    assert!(run.stderr.contains("`policy` is rejected: 3 errors, 0 warnings"), "{}", run.stderr);
}

/// All keys of docs/reference/findings.md: keys may be added, and none may be removed.
#[test]
fn findings_json_has_all_documented_keys() {
    let Some(workspace) = Workspace::open() else { return };
    workspace.write("policy/a.toml", GOOD);
    workspace.write("policy/b.toml", GOOD);
    workspace.write("policy/split.toml", "[[service]]\nname = \"\"\"a\nb\"\"\"\n");
    let run = workspace.run(&["policy", "check", "policy", "--output", "json"]);
    assert_eq!(run.code, 3, "{run:?}");
    let mut json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    let revision = json["revision"].take();
    assert_eq!(revision.as_str().map(str::len), Some(12), "{revision}");
    let expected = json!({
        "revision": null,
        "accepted": false,
        "findings": [
            {
                "code": "IM0202",
                "severity": "error",
                "message": "service `store` is defined twice in namespace `default`",
                "file": "b.toml", "line": 3, "column": 8, "end_line": 3, "end_column": 15,
                "label": "defined again",
                "related": [{
                    "file": "a.toml", "line": 3, "column": 8, "end_line": 3, "end_column": 15,
                    "label": "first defined here",
                }],
                "help": null,
                "objects": ["service:default/store"],
                "fingerprint": json["findings"][0]["fingerprint"],
            },
            {
                "code": "IM0106",
                "severity": "error",
                "message": "`name` may only have `a-z`, `0-9` and `-`: `a\\u000ab`",
                "file": "split.toml", "line": 2, "column": 8, "end_line": 3, "end_column": 5,
                "label": "not a name",
                "related": [],
                "help": "a name has 1 to 63 of `a-z`, `0-9` and `-`",
                "objects": ["file:split.toml"],
                "fingerprint": json["findings"][1]["fingerprint"],
            },
        ],
    });
    for finding in json["findings"].as_array().unwrap() {
        assert_eq!(finding["fingerprint"].as_str().map(str::len), Some(16), "{json:#}");
    }
    assert_eq!(json, expected, "{json:#}");
}

#[test]
fn missing_policy_folder_is_named_and_exits_1() {
    let Some(workspace) = Workspace::open() else { return };
    let run = workspace.run(&["policy", "check", "nowhere"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("`nowhere`"), "{}", run.stderr);
}

#[test]
fn invalid_command_line_exits_2() {
    let Some(workspace) = Workspace::open() else { return };
    assert_eq!(workspace.run(&["policy", "chekc", "policy"]).code, 2);
    let run = workspace.run(&[
        "proxy",
        "bootstrap",
        "--service",
        "Not A Name",
        "--address",
        "::1",
        "--out",
        "x",
    ]);
    assert_eq!(run.code, 2, "{run:?}");
}

#[test]
fn printed_json_schema_equals_the_published_one() {
    let Some(workspace) = Workspace::open() else { return };
    let run = workspace.run(&["policy", "schema"]);
    assert_eq!((run.code, &*run.stderr), (0, ""), "{run:?}");
    let published =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/policy.schema.json");
    assert!(run.stdout == fs_err::read_to_string(published).unwrap(), "run `cargo xtask docs`");
}

#[test]
fn check_with_envoy_validates_the_compiled_policy() {
    let Some(workspace) = Workspace::open() else { return };
    let Some(envoy) = require_envoy() else { return };
    let bookstore = Path::new(env!("CARGO_MANIFEST_DIR")).join("../examples/bookstore/policy");
    let (envoy, bookstore) = (envoy.to_str().unwrap(), bookstore.to_str().unwrap());
    let run = workspace.run(&["policy", "check", bookstore, "--envoy", envoy]);
    assert_eq!((run.code, &*run.stderr), (0, ""), "{run:?}");
    let summary =
        "\nEnvoy accepts the compiled resources: 18 listeners and clusters of 6 sidecars\n";
    assert!(run.stdout.contains(summary), "{}", run.stdout);
    // A program that is no Envoy cannot judge policy.
    let run = workspace.run(&["policy", "check", bookstore, "--envoy", "/bin/true"]);
    assert_eq!((run.code, &*run.stdout), (1, ""), "{run:?}");
}
