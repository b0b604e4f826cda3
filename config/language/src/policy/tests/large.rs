//! Policy that is too large, too deep or no policy at all: loading reports it and does not panic.

use super::*;
use crate::limits::{DOCUMENT_BYTES, DOCUMENTS, FINDINGS, FINDINGS_OF_ONE, POLICY_BYTES};
use crate::render;

const DEEP: usize = 100_000;

#[test]
fn deeply_nested_policy_is_rejected_with_bounded_output() {
    let words = vec!["a"; DEEP].join(".");
    for text in [
        format!("a = {}", "[".repeat(DEEP)),
        format!("a = {}{}", "[".repeat(DEEP), "]".repeat(DEEP)),
        format!("a = {}1{}", "{a = ".repeat(DEEP), "}".repeat(DEEP)),
        format!("service = {}1{}", "[{ports = ".repeat(DEEP), "}]".repeat(DEEP)),
        format!("{words} = 1"),
        format!("[{words}]"),
        format!("[[{words}]]\n{words} = {{ {words} = 1 }}"),
        "[[service]]\nname = \"a\"\n[service.ports]\n".repeat(DEEP / 100),
    ] {
        let loaded = load_one(&text);
        assert!(loaded.specification.is_none(), "{}", &text[..40]);
        assert!(render(&loaded.findings, &loaded.documents, false).len() < 1_000_000);
    }
}

#[test]
fn number_of_findings_is_bounded_and_the_excess_is_reported() {
    let loaded = load_one(&"word\n".repeat(1000));
    let reported = lines(&loaded);
    assert_eq!(reported.len(), FINDINGS_OF_ONE + 1);
    let last = "error[IM0114]: there are more findings than these 100 / \
                fix the reported findings, and check again";
    assert_eq!(reported.last().map(String::as_str), Some(last));
    // The limit also applies to syntax errors of many documents, and to findings across objects.
    let words = (0..100).map(|n| Document::new(format!("{n}.toml"), "word\n".repeat(1000)));
    assert_eq!(load_documents(words).findings.len(), FINDINGS + 1);
    let twice = load_one(&"[[service]]\nname = \"a\"\n".repeat(2000));
    assert_eq!(twice.findings.len(), FINDINGS + 1);
    let backends = "{ service = \"none\", weight = 1 }";
    let missing: Vec<String> = (0..2000)
        .map(|n| {
            format!(
                "[[traffic_split]]\nname = \"{n}\"\nservice = \"s{n}\"\nbackends = [{backends}]\n"
            )
        })
        .collect();
    assert_eq!(load_one(&missing.concat()).findings.len(), FINDINGS + 1);
}

#[test]
fn error_is_reported_despite_many_preceding_warnings() {
    let warning = "[[service]]\nname = \"s-#\"\nports = []\nendpoints = { static = [{ address = \"10.0.0.1\" }] }\n";
    let warnings = (0..2 * FINDINGS_OF_ONE).map(|n| warning.replace('#', &n.to_string()));
    let text = warnings.collect::<String>() + "[[service]]\nname = \"s-0\"\n";
    let documents = (0..2 * FINDINGS / FINDINGS_OF_ONE)
        .map(|n| Document::new(format!("{n:02}.toml"), text.replace("s-", &format!("s-{n}-"))));
    let loaded = load_documents(documents);
    assert!(loaded.specification.is_none());
    let errors = loaded.findings.iter().filter(|finding| finding.is_error()).count();
    assert_eq!(errors, 2 * FINDINGS / FINDINGS_OF_ONE + 1, "one of each document, and IM0114");
}

#[test]
fn too_many_documents_or_bytes_are_one_finding() {
    let documents = (0..=DOCUMENTS).map(|n| Document::new(format!("{n}.toml"), "word"));
    assert_eq!(
        lines(&load_documents(documents)),
        ["error[IM0113]: there are more than 10000 documents in the policy folder / name the \
          folder that holds policy alone, or put several objects into one document"]
    );
    let text: Arc<str> = " ".repeat(DOCUMENT_BYTES).into();
    let documents = (0..=POLICY_BYTES / DOCUMENT_BYTES)
        .map(|n| Document::new(format!("{n}.toml"), Arc::clone(&text)));
    let reported = lines(&load_documents(documents));
    assert_eq!(
        reported,
        ["error[IM0113]: the policy is larger than 32 MiB / are there files in the policy folder \
          that are no policy?"]
    );
}

#[test]
fn policy_loads_again_after_the_excess_is_removed() {
    let good = || Document::new("good.toml", "[[service]]\nname = \"a\"\n");
    let mut loader = Loader::default();
    let many = (0..=DOCUMENTS).map(|n| Document::new(format!("{n}.toml"), ""));
    assert!(loader.load_documents(many.chain([good()])).specification.is_none());
    assert_eq!(loader.parsed(), 0);
    let loaded = loader.load_documents([good()]);
    assert_eq!(loaded.findings, []);
    assert_eq!(loaded.specification.unwrap().services.len(), 1);
}

#[test]
fn rendered_finding_size_is_bounded() {
    let name = "K".repeat(1 << 20);
    for text in [
        format!("[[service]]\nname = \"{name}\"\n"),
        format!("{name} = 1"),
        format!("[[service]]\n{name} = 1"),
        format!("service = [{}]", "1, ".repeat(1 << 18)),
        format!(
            "[[http_route_group]]\nname = \"g\"\nmatches = [{{ name = \"m\", methods = [\"{}\"] }}]",
            name.to_lowercase()
        ),
    ] {
        let loaded = load_one(&text);
        assert!(loaded.specification.is_none());
        let rendered = render(&loaded.findings, &loaded.documents, false);
        assert!(rendered.len() < 20_000, "{} bytes: {}", rendered.len(), &rendered[..1000]);
    }
}

#[test]
fn finding_on_a_long_line_is_rendered_as_its_location_only() {
    let text = format!("service = [{}1]", "{ name = \"a\" }, ".repeat(1000));
    let rendered = render(&load_one(&text).findings[..1], &[Document::new("p.toml", text)], false);
    assert_eq!(
        rendered,
        "error[IM0202]: service `a` is defined twice in namespace `default`\n--> p.toml:1:37\n\
         ::: p.toml:1:21\n"
    );
}

#[test]
fn distant_locations_of_a_finding_are_both_rendered() {
    let comment = "# A line of comment.\n".repeat(1000);
    let text = format!("[[service]]\nname = \"a\"\n{comment}[[service]]\nname = \"a\"\n");
    let loaded = load_one(&text);
    let rendered = render(&loaded.findings, &loaded.documents, false);
    for part in ["defined again", "first defined here", "1004 | name", "2 | name"] {
        assert!(rendered.contains(part), "{part} in\n{rendered}");
    }
}

#[test]
fn long_split_cycle_is_reported_by_its_ends() {
    let text: Vec<String> = (0..50)
        .map(|n| {
            format!(
                "[[service]]\nname = \"s{n}\"\n[[traffic_split]]\nname = \"s{n}\"\nservice = \"s{n}\"\n\
                 backends = [{{ service = \"s{}\", weight = 1 }}]\n",
                (n + 1) % 50
            )
        })
        .collect();
    let reported = finding(&text.concat());
    assert!(reported.contains("form a cycle: s0 → s1 → s2 → s3 → s4 → … → s46 →"), "{reported}");
    assert!(reported.contains("→ s0 ("), "{reported}");
}
