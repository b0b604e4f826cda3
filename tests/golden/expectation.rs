//! The expected files of a case, and how the actual ones differ.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;
use std::path::Path;
use std::time::Duration;

use fs_err as fs;
use ironmesh_catalog::CertificateSource;
use ironmesh_xds_compile::Compiled;
use ironmesh_xds_compile::health_discovery::health_check_specifier;
use ironmesh_xds_wire::message_json;
use serde_json::{Map, Value, json};

use crate::case::{Case, CompiledProxy};

/// The number of lines shown of a difference, and the number before it.
const SHOWN: usize = 12;
const BEFORE: usize = 4;

#[test]
fn every_case_compiles_to_its_expected_files() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut differences = String::new();
    for case in Case::all() {
        let actual = files(&case);
        let folder = case.expectation();
        if update {
            rewrite(&folder, &actual);
        }
        for (file, difference) in compare(&read(&folder), &actual) {
            writeln!(differences, "\n{}/expect/{file}:\n{difference}", case.name).unwrap();
        }
    }
    let advice = "if this is what you meant, UPDATE_GOLDEN=1 rewrites the files: read them then";
    assert!(differences.is_empty(), "{differences}\n{advice}");
}

/// File name → text.
pub(crate) type Files = BTreeMap<String, String>;

/// The actual files of a case.
fn files(case: &Case) -> Files {
    let compiled = case.compile();
    let mut files: Files = compiled
        .iter()
        .map(|one| (format!("{}.json", one.label), format!("{:#}\n", to_json(&one.compiled))))
        .collect();
    let snapshot = case.snapshot();
    for CompiledProxy { label, proxy, .. } in &compiled {
        let by_hand = proxy.metadata.certificates == CertificateSource::Ads;
        let probed = snapshot.as_ref().filter(|_| by_hand);
        let probed = probed.map(|snapshot| snapshot.probed_applications(&proxy.record));
        let (probed, address) = (probed.unwrap_or_default(), proxy.app_address());
        let specifier = health_check_specifier(&probed, address, Duration::from_secs(1));
        if !specifier.cluster_health_checks.is_empty() {
            let text = format!("{:#}\n", message_json(&specifier));
            files.insert(format!("{label}.health-checks.json"), text);
        }
    }
    let findings = case.findings(&compiled);
    if !findings.is_empty() {
        files.insert("findings.txt".to_owned(), findings);
    }
    files
}

/// A proxy's resources as JSON, by type and name.
fn to_json(compiled: &Compiled) -> Value {
    let mut resources: BTreeMap<String, Map<String, Value>> = BTreeMap::new();
    for resource in compiled.resources.iter() {
        let of_type = resources.entry(resource.resource_type().to_string()).or_default();
        of_type.insert(resource.name().to_string(), resource.to_json());
    }
    let serves = compiled.serves.0.iter().map(|(service, port)| format!("{service}|{port}"));
    let participation_resources = compiled.participation_resources.iter();
    json!({
        "serves": serves.collect::<Vec<_>>(),
        "takes_part_with":
            participation_resources.map(|(kind, name, _)| format!("{kind} {name}")).collect::<Vec<_>>(),
        "resources": resources,
    })
}

pub(crate) fn read(folder: &Path) -> Files {
    let Ok(entries) = fs::read_dir(folder) else { return Files::new() };
    entries
        .map(|entry| {
            let entry = entry.unwrap();
            let name = entry.file_name().into_string().unwrap();
            (name, fs::read_to_string(entry.path()).unwrap())
        })
        .collect()
}

pub(crate) fn rewrite(folder: &Path, files: &Files) {
    fs::create_dir_all(folder).unwrap();
    for stale in read(folder).keys().filter(|name| !files.contains_key(*name)) {
        fs::remove_file(folder.join(stale)).unwrap();
    }
    for (name, text) in files {
        fs::write(folder.join(name), text).unwrap();
    }
}

/// The files that differ, each with its difference.
pub(crate) fn compare(expected: &Files, actual: &Files) -> Vec<(String, String)> {
    let names: BTreeSet<_> = expected.keys().chain(actual.keys()).collect();
    let difference = |name: &String| match (expected.get(name), actual.get(name)) {
        (Some(expected), Some(actual)) => first_difference(expected, actual),
        (Some(_), None) => Some("it is expected and did not come out".to_owned()),
        (None, _) => Some("it came out and is not expected".to_owned()),
    };
    names.into_iter().filter_map(|name| Some((name.clone(), difference(name)?))).collect()
}

/// The lines around the first difference.
fn first_difference(expected: &str, actual: &str) -> Option<String> {
    if expected == actual {
        return None;
    }
    let (expected, actual): (Vec<_>, Vec<_>) =
        (expected.lines().collect(), actual.lines().collect());
    let alike = expected.iter().zip(&actual).take_while(|(a, b)| a == b).count();
    let mut shown = format!("first difference in line {}:\n", alike + 1);
    for line in expected.iter().take(alike).skip(alike.saturating_sub(BEFORE)) {
        writeln!(shown, "      {line}").unwrap();
    }
    for (sign, lines) in [("-", &expected), ("+", &actual)] {
        for line in lines.iter().skip(alike).take(SHOWN) {
            writeln!(shown, "    {sign} {line}").unwrap();
        }
    }
    Some(shown)
}

#[test]
fn difference_is_shown_from_its_first_line() {
    assert_eq!(first_difference("a\nb\n", "a\nb\n"), None);
    let shown = first_difference("a\nb\nc\n", "a\nx\nc\n").unwrap();
    assert_eq!(shown, "first difference in line 2:\n      a\n    - b\n    - c\n    + x\n    + c\n");
    assert!(first_difference("a\n", "a\n\n").is_some());
    let files = |name: &str| Files::from([(name.to_owned(), String::new())]);
    assert_eq!(compare(&files("a"), &files("b")).len(), 2, "a file too many and one too few");
}
