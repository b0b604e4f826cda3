//! `ironmesh policy check`.

use std::path::Path;

use crate::command::Place;

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
fn a_good_policy_is_counted_and_exits_with_0() {
    let Some(place) = Place::open() else { return };
    place.write("policy/a.toml", GOOD);
    let run = place.run(&["policy", "check", "policy"]);
    assert_eq!(run.code, 0, "{run:?}");
    assert!(run.stdout.contains("1 service, 0 traffic targets"), "{run:?}");
    assert_eq!(run.stderr, "");
}

#[test]
fn an_empty_folder_is_a_policy_that_allows_nothing() {
    let Some(place) = Place::open() else { return };
    fs_err::create_dir(place.path().join("policy")).unwrap();
    assert_eq!(place.run(&["policy", "check", "policy"]).code, 0);
}

#[test]
fn all_mistakes_of_all_files_are_drawn_at_once_and_exit_with_3() {
    let Some(place) = Place::open() else { return };
    place.write("policy/a.toml", GOOD);
    place.write("policy/split.toml", BAD_SPLIT);
    place.write("policy/team/key.toml", BAD_KEY);
    let run = place.run(&["policy", "check", "policy"]);
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
    assert!(run.stderr.contains("`policy` is refused: 3 errors, 0 warnings"), "{}", run.stderr);
}

#[test]
fn machines_get_findings_as_json() {
    let Some(place) = Place::open() else { return };
    place.write("policy/split.toml", BAD_SPLIT);
    place.write("policy/a.toml", GOOD);
    let run = place.run(&["policy", "check", "policy", "--output", "json"]);
    assert_eq!(run.code, 3, "{run:?}");
    let json: serde_json::Value = serde_json::from_str(&run.stdout).unwrap();
    assert_eq!(json["accepted"], false);
    let first = &json["findings"][0];
    assert_eq!(
        (&first["code"], &first["file"]),
        (&"IM0201".into(), &"split.toml".into()),
        "{json:#}"
    );
    assert_eq!((&first["line"], &first["column"]), (&4.into(), &11.into()), "{json:#}");
}

#[test]
fn a_missing_folder_is_named_and_exits_with_1() {
    let Some(place) = Place::open() else { return };
    let run = place.run(&["policy", "check", "nowhere"]);
    assert_eq!(run.code, 1, "{run:?}");
    assert!(run.stderr.contains("`nowhere`"), "{}", run.stderr);
}

#[test]
fn a_wrong_command_line_exits_with_2() {
    let Some(place) = Place::open() else { return };
    assert_eq!(place.run(&["policy", "chekc", "policy"]).code, 2);
    let run = place.run(&[
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
fn the_json_schema_that_is_printed_is_the_one_that_is_published() {
    let Some(place) = Place::open() else { return };
    let run = place.run(&["policy", "schema"]);
    assert_eq!((run.code, &*run.stderr), (0, ""), "{run:?}");
    let published =
        Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/reference/policy.schema.json");
    assert!(run.stdout == fs_err::read_to_string(published).unwrap(), "run `cargo xtask docs`");
}
