//! Equal input compiles to equal bytes (invariant 4), in 20 separate processes: what varies, such
//! as the order of a hash map, varies between processes.

use std::collections::BTreeMap;
use std::fmt::Write as _;
use std::path::Path;
use std::process::{Child, Command};
use std::thread::available_parallelism;

use fs_err as fs;

use crate::case::Case;

const PROCESSES: usize = 20;

/// The environment variable with the path of a child's output file.
const OUTPUT: &str = "IRONMESH_GOLDEN_VERSIONS";

#[test]
fn golden_resources_encode_identically_in_20_processes() {
    let folder = tempfile::tempdir().unwrap();
    let files: Vec<_> = (0..PROCESSES).map(|n| folder.path().join(n.to_string())).collect();
    let at_once = available_parallelism().map_or(1, usize::from);
    for batch in files.chunks(at_once) {
        let children: Vec<_> = batch.iter().map(|file| start(file)).collect();
        for child in children {
            let output = child.wait_with_output().unwrap();
            assert!(output.status.success(), "a process failed: {output:?}");
        }
    }
    let mut processes: BTreeMap<String, usize> = BTreeMap::new();
    for file in &files {
        *processes.entry(fs::read_to_string(file).unwrap()).or_default() += 1;
    }
    let [first, others @ ..] = &*processes.keys().collect::<Vec<_>>() else {
        panic!("no process wrote anything")
    };
    assert!(first.lines().count() > 100, "next to nothing was compiled:\n{first}");
    let differing = first.lines().filter(|line| {
        others.iter().any(|other| !other.lines().any(|other_line| other_line == *line))
    });
    let differing: Vec<_> = differing.collect();
    assert!(
        others.is_empty(),
        "{PROCESSES} processes wrote {} different outputs; these resources differ:\n{}",
        processes.len(),
        differing.join("\n")
    );
}

/// Not a test of its own: the body of each child process.
#[test]
fn child_process_writes_all_resource_versions() {
    let Some(file) = std::env::var_os(OUTPUT) else { return };
    let mut versions = String::new();
    for case in Case::all() {
        for one in case.compile() {
            for resource in one.compiled.resources.iter() {
                let (kind, name) = (resource.resource_type(), resource.name());
                let version = resource.version();
                let (case, label) = (&case.name, &one.label);
                writeln!(versions, "{case}, {label}: {kind} {name} {version}").unwrap();
            }
        }
    }
    fs::write(Path::new(&file), versions).unwrap();
}

fn start(file: &Path) -> Child {
    let itself = std::env::current_exe().unwrap();
    let mut command = Command::new(itself);
    let helper = "bytes::child_process_writes_all_resource_versions";
    command.args(["--exact", helper]).env(OUTPUT, file);
    command.stdout(std::process::Stdio::piped()).stderr(std::process::Stdio::piped());
    command.spawn().unwrap()
}
