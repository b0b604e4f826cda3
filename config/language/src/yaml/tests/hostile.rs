//! YAML of strangers: findings, never a panic, and no more memory than the text is worth.

use super::*;

fn first(text: &str) -> String {
    findings(text).into_iter().next().unwrap_or_default()
}

#[test]
fn invalid_yaml_is_reported_at_the_parse_error() {
    for (text, expected) in [
        ("a: 'x\n", "(p.yaml:1:4)"),
        ("a:\n\tb: 1\n", "(p.yaml:2:2)"),
        ("a: b: c\n", "mapping values are not allowed in this context (p.yaml:1:5)"),
        ("ü: [\n", "(p.yaml:"),
        ("a: \u{0}\n", "found unprintable character (p.yaml:1:4)"),
        ("a: *nowhere\n", "unknown anchor (p.yaml:1:4)"),
    ] {
        let reported = first(text);
        assert!(reported.starts_with("error[IM0111]: "), "{text:?}: {reported}");
        assert!(reported.contains(expected), "{text:?}: {reported}");
    }
}

#[test]
fn errors_of_all_documents_are_reported_and_valid_ones_read() {
    let text = format!(
        "a: 'x\n---\nb: [\n{SERVICES}---\nc: &a 1\nd: *a\n---\nkind: ConfigMap\napiVersion: v1\n"
    );
    let reported = findings(&text);
    let codes: Vec<_> = reported.iter().map(|line| &line[..15]).collect();
    assert_eq!(
        codes,
        ["error[IM0111]: "; 3].into_iter().chain(["warning[IM0112]"]).collect::<Vec<_>>()
    );
}

#[test]
fn names_in_a_broken_document_are_not_reported_missing() {
    let broken = "---\nkind: Service\nmetadata: { name: store\n";
    let text = format!("{}{TARGET}{GROUP}{broken}", SERVICES.replace("store", "other"));
    let reported = findings(&text);
    assert_eq!(reported.len(), 1, "{reported:#?}");
    assert!(reported[0].starts_with("error[IM0111]"), "{reported:#?}");
}

#[test]
fn aliases_merge_keys_tags_and_non_string_keys_are_rejected() {
    for (text, expected) in [
        (
            "a: &x [1]\nb: *x\n",
            "YAML aliases are not supported (p.yaml:2:4) / write out what it stands for",
        ),
        ("a:\n  <<: { b: 1 }\n", "YAML merge keys are not supported (p.yaml:2:3)"),
        ("a: !secret b\n", "YAML tags are not supported: `!secret` (p.yaml:1:4)"),
        (
            "a: !!binary b\n",
            "YAML tags are not supported: `tag:yaml.org,2002:!binary` (p.yaml:1:4)",
        ),
        ("a: !x [b]\n", "YAML tags are not supported: `!x` (p.yaml:1:4)"),
        ("[a, b]: c\n", "a key must be a string, not array (p.yaml:1:1)"),
        ("? { a: b }\n: c\n", "a key must be a string, not table (p.yaml:1:3)"),
        ("80: c\n", "a key must be a string, not integer (p.yaml:1:1)"),
        ("~: c\n", "a key is missing (p.yaml:1:1)"),
        ("a: 1\nb: 2\na: 3\n", "key `a` is given twice (p.yaml:3:1)"),
        ("a: [1, ~]\n", "an item of a list has no value (p.yaml:1:8)"),
    ] {
        let reported = findings(text);
        assert_eq!(reported.len(), 1, "{reported:#?}");
        assert!(reported[0].starts_with(&format!("error[IM0111]: {expected}")), "{}", reported[0]);
    }
}

#[test]
fn billion_laughs_yields_one_finding_per_alias() {
    let line = |n: u32| format!("a{}: &a{} [*a{n}, *a{n}]\n", n + 1, n + 1);
    let lines: Vec<_> = (0..29).map(line).collect();
    let text = format!("a0: &a0 [lol, lol]\n{}", lines.concat());
    assert_eq!(findings(&text).len(), 58);
}

#[test]
fn depth_size_and_findings_are_bounded() {
    let stairs: Vec<_> = (0..10_000).map(|n| format!("{}a:\n", " ".repeat(n % 500))).collect();
    for deep in ["[".repeat(10_000), "- ".repeat(10_000), "{ a: ".repeat(10_000), stairs.concat()] {
        let reported = findings(&deep);
        assert!(
            reported.len() <= 100 && reported[0].starts_with("error[IM0111]"),
            "{:?}",
            reported.first()
        );
    }
    let deep = first(&"- ".repeat(10_000));
    assert!(deep.contains("nested more than 32 deep (p.yaml:1:65)"), "{deep}");
    let long = first(&format!("a: [{}]\n", "1,".repeat(600_000)));
    assert!(long.contains("more than 500000 values"), "{long}");
    assert_eq!(findings(&"a: 1\n".repeat(10_000)).len(), 100);
    assert_eq!(findings(&"---\na: 'x' y\n".repeat(10_000)).len(), 100);
}

#[test]
fn huge_scalar_is_checked_as_any_value() {
    let huge = "x".repeat(1_000_000);
    let text = SERVICES.replace("name: buyer", &format!("name: {huge}"));
    assert!(first(&text).starts_with("error[IM0106]"));
    let comment = format!("{SERVICES}# {huge}\n");
    assert!(findings(&comment).is_empty());
}

#[test]
fn byte_order_mark_and_crlf_change_nothing() {
    let unix = format!("{SERVICES}{TARGET}{GROUP}");
    let windows = format!("\u{feff}{}", unix.replace('\n', "\r\n"));
    assert_eq!(meaning(&specification(&unix)), meaning(&specification(&windows)));
    let wrong =
        format!("\u{feff}{}", SERVICES.replace("port: 80", "port: eighty").replace('\n', "\r\n"));
    assert_eq!(
        finding(&wrong),
        "error[IM0104]: `port` must be an integer, not a string (p.yaml:9:11)"
    );
}

#[test]
fn empty_documents_are_ignored() {
    for text in ["", "\n\n", "# nothing\n", "---\n---\n# nothing\n...\n", "~\n", "\u{feff}"] {
        assert_eq!(findings(text), [""; 0], "{text:?}");
    }
}

#[test]
fn truncated_or_modified_yaml_is_read_without_panic() {
    let text = GROUP.replace("buy", "bü");
    for (at, character) in text.char_indices() {
        let (before, after) = text.split_at(at);
        let rest = &after[character.len_utf8()..];
        for text in [before.to_owned(), format!("{before}{rest}")].into_iter().chain(
            ["\"", "[", ":", "\t", "\u{feff}", "- ", "&x ", "\n---\n"]
                .map(|put| format!("{before}{put}{after}")),
        ) {
            let loaded = load(&text);
            render(&loaded.findings, &loaded.documents, false);
        }
    }
}
