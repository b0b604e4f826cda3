//! Imports of YAML: a folder below `imports/` has YAML files, and `expect/` with the policy in TOML
//! and the command's output. The folder's name begins with the value of `--from`: `osm`, `smi`, or
//! `any` for none.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use fs_err as fs;
use ironmesh_config_language::{
    Document, ImportDialect, ImportError, Imported, Remark, import, load_documents, render,
};

use crate::expectation::{Files, compare, read, rewrite};

struct Import {
    name: String,
    folder: PathBuf,
    documents: Vec<Document>,
    result: Result<Imported, ImportError>,
}

fn imports() -> Vec<Import> {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("golden/imports");
    let entries = fs::read_dir(folder).unwrap().map(|entry| entry.unwrap().path());
    let imports: Vec<_> = entries.map(read_import).collect();
    assert!(imports.len() >= 10, "most are gone: {}", imports.len());
    imports
}

fn read_import(folder: PathBuf) -> Import {
    let name = folder.file_name().unwrap().to_str().unwrap().to_owned();
    let files = fs::read_dir(&folder).unwrap().map(|entry| entry.unwrap().path());
    let files = files.filter(|path| path.extension().is_some_and(|end| end == "yaml"));
    let texts: BTreeMap<_, _> = files
        .map(|path| {
            let name = path.file_name().unwrap().to_str().unwrap().to_owned();
            (name, fs::read_to_string(path).unwrap())
        })
        .collect();
    let documents: Vec<_> =
        texts.into_iter().map(|(name, text)| Document::new(name, text)).collect();
    let dialect = match name.split_once('-').unwrap().0 {
        "osm" => Some(ImportDialect::Osm),
        "smi" => Some(ImportDialect::Smi),
        "any" => None,
        other => panic!("`{other}` is no origin"),
    };
    let result = import(&documents, dialect, "policy.toml");
    Import { name, folder, documents, result }
}

/// The output of the import, as files.
fn files(import: &Import) -> Files {
    let mut reported = String::new();
    let mut files = Files::new();
    match &import.result {
        Ok(imported) => {
            let Imported { toml, left_out, changed, missing, .. } = imported;
            files.insert("policy.toml".to_owned(), toml.clone());
            for (what, remarks) in [("left out", left_out), ("changed", changed)] {
                for Remark { spot, resource, text } in remarks {
                    writeln!(reported, "{what}: {resource} ({spot}): {text}").unwrap();
                }
            }
            for one in missing {
                writeln!(reported, "missing: {one}").unwrap();
            }
        }
        Err(ImportError::Broken(findings)) => reported = render(findings, &import.documents, false),
        Err(ImportError::Unclear(places)) => panic!("{}: {places:?}", import.name),
    }
    files.insert("report.txt".to_owned(), reported);
    files
}

#[test]
fn every_import_produces_its_expected_files() {
    let update = std::env::var_os("UPDATE_GOLDEN").is_some_and(|value| value == "1");
    let mut differences = String::new();
    for import in imports() {
        let (folder, actual) = (import.folder.join("expect"), files(&import));
        if update {
            rewrite(&folder, &actual);
        }
        for (file, difference) in compare(&read(&folder), &actual) {
            writeln!(differences, "\n{}/expect/{file}:\n{difference}", import.name).unwrap();
        }
    }
    let advice = "if this is what you meant, UPDATE_GOLDEN=1 rewrites the files: read them then";
    assert!(differences.is_empty(), "{differences}\n{advice}");
}

#[test]
fn imported_policy_loads_unless_the_input_is_incomplete() {
    for Import { name, result, .. } in imports() {
        let Ok(imported) = result else { continue };
        let errors: Vec<_> =
            imported.findings.iter().filter(|finding| finding.is_error()).collect();
        assert!(errors.is_empty(), "{name}: {errors:#?}");
        let loaded = load_documents([Document::new("policy.toml", imported.toml.as_str())]);
        let is_whole = imported.missing.is_empty() && errors.is_empty();
        assert_eq!(loaded.specification.is_some(), is_whole, "{name}");
    }
}

#[test]
fn migration_guide_shows_the_actual_import_result() {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    let guide = fs::read_to_string(root.join("../docs/guides/from-osm.md")).unwrap();
    let import = read_import(root.join("golden/imports/osm-guide"));
    let imported = import.result.unwrap();
    assert!(guide.contains(&format!("```yaml\n{}```", import.documents[0].text)));
    assert!(guide.contains(&format!("```toml\n{}```", imported.toml)));
    for Remark { resource, text, .. } in &imported.left_out {
        assert!(guide.contains(&format!("left out: {resource}")) && guide.contains(text), "{text}");
    }
}
