//! The workspace as Cargo sees it.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;
use std::process::Command;

use cargo_metadata::{DependencyKind, Metadata, MetadataCommand, Package, PackageId};

/// Reads the metadata of this workspace, for this platform only: the built tests have downloaded
/// that much.
pub(crate) fn metadata() -> Metadata {
    let rustc = Command::new("rustc").arg("-vV").output().unwrap();
    let host = String::from_utf8(rustc.stdout)
        .unwrap()
        .lines()
        .find_map(|line| line.strip_prefix("host: ").map(str::to_owned))
        .unwrap();
    MetadataCommand::new()
        .manifest_path(root().join("Cargo.toml"))
        .other_options(["--filter-platform".to_owned(), host])
        .exec()
        .unwrap()
}

/// The top folder of the workspace.
pub(crate) fn root() -> PathBuf {
    let tests = std::env::var_os("CARGO_MANIFEST_DIR").unwrap();
    PathBuf::from(tests).parent().unwrap().to_owned()
}

/// The packages under `[dependencies]`; not those of tests and build scripts.
pub(crate) fn named_dependencies(package: &Package) -> BTreeSet<&str> {
    let normal = |kind| kind == DependencyKind::Normal;
    package.dependencies.iter().filter(|d| normal(d.kind)).map(|d| d.name.as_str()).collect()
}

/// The normal dependencies of every built package, of the workspace or external.
pub(crate) fn normal_graph(metadata: &Metadata) -> BTreeMap<&PackageId, Vec<&PackageId>> {
    let resolve = metadata.resolve.as_ref().unwrap();
    let normal = |dep: &&cargo_metadata::NodeDep| {
        dep.dep_kinds.iter().any(|kind| kind.kind == DependencyKind::Normal)
    };
    resolve
        .nodes
        .iter()
        .map(|node| (&node.id, node.deps.iter().filter(normal).map(|dep| &dep.pkg).collect()))
        .collect()
}
