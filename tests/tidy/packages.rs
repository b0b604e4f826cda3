//! The packages: both have the same files, and the version of the pages is that of the workspace.

use toml::{Table, Value};

use crate::workspace::root;

fn text(path: &str) -> String {
    fs_err::read_to_string(root().join(path)).unwrap()
}

/// A file in a package: source, destination with a name, mode.
fn asset(source: &Value, destination: &Value, mode: &Value) -> [String; 3] {
    let [source, destination, mode] =
        [source, destination, mode].map(|value| value.as_str().unwrap().to_owned());
    let name = source.rsplit('/').next().unwrap();
    let name = if destination.ends_with('/') { name } else { "" };
    // The one difference: each distribution has a folder of its own for completions of zsh.
    let path = destination.trim_start_matches('/').replace("site-functions", "vendor-completions");
    [source.clone(), format!("{path}{name}"), mode]
}

#[test]
fn deb_and_rpm_have_the_same_files() {
    let manifest: Table = text("cmd/Cargo.toml").parse().unwrap();
    let metadata = &manifest["package"]["metadata"];
    let deb = metadata["deb"]["assets"].as_array().unwrap();
    let deb: Vec<_> = deb.iter().map(|file| asset(&file[0], &file[1], &file[2])).collect();
    let rpm = metadata["generate-rpm"]["assets"].as_array().unwrap();
    let rpm: Vec<_> =
        rpm.iter().map(|file| asset(&file["source"], &file["dest"], &file["mode"])).collect();
    assert!(deb.len() > 10, "{deb:?}");
    assert_eq!(deb, rpm);
    for file in fs_err::read_dir(root().join("packaging/units")).unwrap() {
        let name = file.unwrap().file_name().into_string().unwrap();
        assert!(deb.iter().any(|[_, path, _]| path.ends_with(&name)), "no package has {name}");
    }
}

#[test]
fn pages_name_the_package_of_this_version() {
    let package = concat!("ironmesh_", env!("CARGO_PKG_VERSION"), "-1_amd64.deb");
    for page in ["docs/guides/join-a-machine.md", "docs/guides/packages.md"] {
        let text = text(page);
        assert!(text.contains(package), "{page} does not name {package}");
        let others = text.matches("ironmesh_").count() - text.matches(package).count();
        assert_eq!(others, text.matches("ironmesh_…").count(), "{page} names a different package");
    }
    assert!(text("CHANGELOG.md").contains(concat!("\n## [", env!("CARGO_PKG_VERSION"), "]")));
}

#[test]
fn collection_compares_bootstraps_to_the_version_of_this_program() {
    let value = |path: &str, prefix: &str| {
        let text = text(path);
        let mut values = text.lines().filter_map(|line| line.trim_start().strip_prefix(prefix));
        values.next().unwrap().trim_end_matches(';').to_owned()
    };
    let program =
        value("catalog/src/proxy/node_metadata.rs", "pub const BOOTSTRAP_VERSION: u32 = ");
    let role = value(
        "deploy-ansible/roles/machine/vars/main.yml",
        "_ironmesh_machine_bootstrap_version: ",
    );
    assert_eq!(role, program, "`BOOTSTRAP_VERSION` has changed: change the variable of the role");
}
