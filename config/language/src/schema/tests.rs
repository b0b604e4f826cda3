//! The schema agrees with the readers: the same keys, and the same values.

mod agreement;
mod keys;

use std::path::{Path, PathBuf};

use jsonschema::{Draft, Validator};
use serde_json::Value;

use super::{KINDS, json_schema};
use crate::{Document, load_documents};

/// The examples of all kinds, each a document.
fn examples() -> Vec<Document> {
    KINDS
        .iter()
        .map(|kind| Document::new(format!("{}.toml", kind.kind.key()), kind.example))
        .collect()
}

/// What editors check documents with; as draft 4, which is the least that they know.
fn validators() -> [Validator; 2] {
    let schema = json_schema();
    [Draft::Draft7, Draft::Draft4]
        .map(|draft| jsonschema::options().with_draft(draft).build(&schema).unwrap())
}

/// A document as an editor sees it.
fn as_json(text: &str) -> Value {
    serde_json::to_value(text.parse::<toml::Table>().unwrap()).unwrap()
}

#[test]
fn examples_form_one_policy_without_findings() {
    let loaded = load_documents(examples());
    assert!(loaded.findings.is_empty(), "{:#?}", loaded.findings);
}

#[test]
fn json_schema_accepts_every_policy_that_loads() {
    let mut policies = Vec::new();
    for folder in ["tests/golden/cases", "examples", "docs/reference"] {
        toml_files(&root().join(folder), &mut policies);
    }
    let policies = policies.into_iter().filter(|path| path.parent().unwrap().ends_with("policy"));
    let documents = policies.map(|path| {
        Document::new(path.display().to_string(), fs_err::read_to_string(path).unwrap())
    });
    let mut accepted = 0;
    let validators = validators();
    for document in documents.chain(examples()) {
        let loaded = load_documents([document.clone()]);
        // What is named in other files is not looked for here.
        let is_rejected = |code| (101..200).contains(&code) || code == 304;
        if loaded.findings.iter().any(|finding| is_rejected(finding.code.0)) {
            continue;
        }
        let json = as_json(&document.text);
        for validator in &validators {
            let problem = validator.validate(&json).err();
            assert!(problem.is_none(), "{}: {}", document.path, problem.unwrap());
        }
        accepted += 1;
    }
    assert!(accepted > 20, "only {accepted} documents were looked at");
}

#[test]
fn json_schema_rejects_malformed_policy() {
    let with = |text: &str| as_json(&format!("[[service]]\nname = \"a\"\n{text}"));
    let [draft_7, draft_4] = validators();
    for text in [
        "nmae = 1",
        "namespace = \"Shop\"",
        "ports = 80",
        "ports = [80]",
        "ports = [{ port = 80 }]",
        "ports = [{ port = 0, protocol = \"http\" }]",
        "ports = [{ port = 80, protocol = \"htpp\" }]",
        "mode = \"lax\"",
        "endpoints = {}",
        "endpoints = { static = [] }",
        "endpoints = { static = [{ address = \"10.0.0.1\", labels = {} }] }",
        "health = { http = { path = \"/\" }, tcp = {} }",
        "[[servcie]]",
        "[traffic_target]",
        "[[http_route_group]]\nname = \"b\"\nmatches = []",
        "[[http_route_group]]\nname = \"b\"\nmatches = [{ name = \"c\", headers = [] }]",
        "[[http_route_group]]\nname = \"b\"\nmatches = [{ name = \"c\", methods = [\"get\"] }]",
    ] {
        assert!(!draft_7.is_valid(&with(text)), "{text}");
        assert!(!draft_4.is_valid(&with(text)), "{text}");
    }
    assert!(draft_7.is_valid(&with("")));
}

#[test]
fn json_schema_is_valid_in_draft_7_and_draft_4() {
    let schema = json_schema();
    jsonschema::draft7::meta::validate(&schema).unwrap();
    jsonschema::draft4::meta::validate(&schema).unwrap();
}

fn root() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../..")
}

fn toml_files(folder: &Path, found: &mut Vec<PathBuf>) {
    for entry in fs_err::read_dir(folder).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() {
            toml_files(&path, found);
        } else if path.extension().is_some_and(|extension| extension == "toml") {
            found.push(path);
        }
    }
}
