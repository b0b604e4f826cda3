//! `cargo xtask mutations`: small mutations of the catalog, the xDS engine and the compiler, each of which breaks one rule.
//! The test of that rule must fail.
//!
//! `xtask/mutations.toml` lists the mutations. They are applied in sequence to a copy of the workspace in the target
//! folder, never to the working tree.

use std::fmt::Write as _;
use std::io::{self, Write as _};
use std::path::{Path, PathBuf};
use std::process::{Command, Stdio};
use std::time::Duration;

use anyhow::{Context, bail, ensure};
use cargo_metadata::{Message, MetadataCommand};

#[cfg(test)]
mod tests;

/// A crate that is mutated.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Package {
    name: &'static str,
    folder: &'static str,
}

const PACKAGES: [Package; 3] = [
    Package { name: "ironmesh-catalog", folder: "catalog" },
    Package { name: "ironmesh-xds-server", folder: "xds/server" },
    Package { name: "ironmesh-xds-compile", folder: "xds/compile" },
];

/// The number of polls for the end of a test, and their interval. A unit test takes milliseconds; a mutated one may never
/// end.
const POLLS: (u32, Duration) = (6000, Duration::from_millis(10));

/// A change that breaks a rule.
struct Mutation {
    rule: String,
    /// The effect of the mutation, in words.
    breaks: String,
    package: Package,
    file: String,
    from: String,
    to: String,
    /// The test that must fail.
    test: String,
}

/// The result of a test.
#[derive(Debug, PartialEq, Eq)]
enum Outcome {
    Passed,
    Failed,
    /// The test did not end, which also detects the mutation.
    Endless,
}

/// Runs those mutations whose rule or test contains `filter`.
pub(crate) fn run(filter: &str) -> anyhow::Result<()> {
    let mutations: Vec<_> = read()?
        .into_iter()
        .filter(|mutation| mutation.rule == filter || mutation.test.contains(filter))
        .collect();
    ensure!(!mutations.is_empty(), "no mutation of {filter:?}");
    let metadata = MetadataCommand::new().no_deps().exec()?;
    let target = metadata.target_directory.as_std_path();
    let copy = target.join("mutations");
    copy_workspace(metadata.workspace_root.as_std_path(), &copy)?;
    change_version(&copy)?;

    let mut out = io::stdout();
    for package in PACKAGES {
        let own: Vec<_> = mutations.iter().filter(|one| one.package == package).collect();
        if own.is_empty() {
            continue;
        }
        let sound = build(&copy, target, package)?.context("the unmutated copy does not build")?;
        for Mutation { test: name, .. } in own {
            let outcome = test(&sound, &copy.join(package.folder), name)?;
            ensure!(outcome == Outcome::Passed, "the unmutated test {name}: {outcome:?}");
        }
    }
    writeln!(out, "| rule | broken so that | test that failed | |\n|---|---|---|---|")?;
    let mut survivors = 0;
    for mutation in &mutations {
        let path = copy.join(&mutation.file);
        let text = fs_err::read_to_string(&path)?;
        ensure!(
            text.matches(&mutation.from).count() == 1,
            "{}: expected exactly once in {}: {}",
            mutation.rule,
            mutation.file,
            mutation.from
        );
        fs_err::write(&path, text.replace(&mutation.from, &mutation.to))?;
        let outcome = match build(&copy, target, mutation.package)? {
            Some(tests) => test(&tests, &copy.join(mutation.package.folder), &mutation.test)?,
            None => bail!("{}: the mutation of {} does not build", mutation.rule, mutation.file),
        };
        fs_err::write(&path, text)?;
        let words = match outcome {
            Outcome::Failed => "seen",
            Outcome::Endless => "seen: the test does not end",
            Outcome::Passed => "NOT SEEN",
        };
        survivors += u32::from(outcome == Outcome::Passed);
        let Mutation { rule, breaks, test, .. } = mutation;
        writeln!(out, "| {rule} | {breaks} | `{}` | {words} |", test.replace("::tests::", "::"))?;
    }
    ensure!(survivors == 0, "{survivors} mutations were not seen");
    Ok(())
}

/// The list of mutations, as a table.
pub(crate) fn table() -> anyhow::Result<String> {
    let mut table = "| rule | broken so that | test that must fail |\n|---|---|---|\n".to_owned();
    for Mutation { rule, breaks, test, .. } in read()? {
        writeln!(table, "| {rule} | {breaks} | `{}` |", test.replace("::tests::", "::"))?;
    }
    Ok(table)
}

fn read() -> anyhow::Result<Vec<Mutation>> {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("mutations.toml");
    let table: toml::Table = fs_err::read_to_string(path)?.parse()?;
    let all = table.get("mutation").and_then(toml::Value::as_array).context("no mutations")?;
    let read = |value: &toml::Value| {
        let field = |name: &str| {
            let text = value.get(name).and_then(toml::Value::as_str);
            text.map(str::to_owned).with_context(|| format!("`{name}` is missing: {value}"))
        };
        let file = field("file")?;
        let package = PACKAGES.into_iter().find(|package| file.starts_with(package.folder));
        Ok(Mutation {
            rule: field("rule")?,
            breaks: field("breaks")?,
            package: package.with_context(|| format!("{file} is in none of the mutated crates"))?,
            file,
            from: field("from")?,
            to: field("to")?,
            test: field("test")?,
        })
    };
    all.iter().map(read).collect()
}

/// Copies all tracked and untracked files that git does not ignore, as they are in the working tree.
fn copy_workspace(root: &Path, copy: &Path) -> anyhow::Result<()> {
    if copy.exists() {
        fs_err::remove_dir_all(copy)?;
    }
    let mut git = Command::new("git");
    git.args(["ls-files", "--cached", "--others", "--exclude-standard", "-z"]).current_dir(root);
    let files = git.output().context("git")?;
    ensure!(files.status.success(), "git ls-files failed");
    for file in String::from_utf8(files.stdout)?.split_terminator('\0') {
        let (from, to) = (root.join(file), copy.join(file));
        if from.is_file() {
            fs_err::create_dir_all(to.parent().context("a file has a folder")?)?;
            fs_err::copy(from, to)?;
        }
    }
    Ok(())
}

/// Changes the version of the crates in the copy.
///
/// Both share a target folder, and Cargo would otherwise take the copy for the working tree: after an interrupted run,
/// the next `cargo test` would run a mutated crate.
fn change_version(copy: &Path) -> anyhow::Result<()> {
    let path = copy.join("Cargo.toml");
    let (ours, own) = ("version = \"0.2.0\"\n", "version = \"0.0.0-mutated\"\n");
    let text = fs_err::read_to_string(&path)?;
    ensure!(text.matches(ours).count() == 1, "{}: expected exactly once: {ours}", path.display());
    fs_err::write(&path, text.replacen(ours, own, 1))?;
    Ok(())
}

/// Builds the unit tests of a crate in the copy, with the existing dependencies. Returns `None` if they do not build.
fn build(copy: &Path, target: &Path, package: Package) -> anyhow::Result<Option<PathBuf>> {
    let cargo = std::env::var_os("CARGO").unwrap_or_else(|| "cargo".into());
    let mut command = Command::new(cargo);
    command.args(["test", "--quiet", "--offline", "--lib", "--no-run", "--message-format=json"]);
    command.args(["--package", package.name, "--target-dir"]).arg(target).current_dir(copy);
    let output = command.stderr(Stdio::inherit()).output()?;
    if !output.status.success() {
        return Ok(None);
    }
    for message in Message::parse_stream(&*output.stdout) {
        if let Message::CompilerArtifact(artifact) = message?
            && artifact.profile.test
            && let Some(executable) = artifact.executable
        {
            return Ok(Some(executable.into_std_path_buf()));
        }
    }
    bail!("cargo has built no tests")
}

/// Runs one test of the crate in `folder`.
fn test(tests: &Path, folder: &Path, name: &str) -> anyhow::Result<Outcome> {
    let mut command = Command::new(tests);
    command.args(["--exact", name]).current_dir(folder).stderr(Stdio::null());
    let list = command.arg("--list").output()?;
    ensure!(!list.stdout.starts_with(b"0 tests"), "there is no test {name}");
    let mut command = Command::new(tests);
    command.args(["--exact", name]).current_dir(folder);
    let mut child = command.stdout(Stdio::null()).stderr(Stdio::null()).spawn()?;
    for _ in 0..POLLS.0 {
        match child.try_wait()? {
            Some(status) if status.success() => return Ok(Outcome::Passed),
            Some(_) => return Ok(Outcome::Failed),
            None => std::thread::sleep(POLLS.1),
        }
    }
    child.kill()?;
    child.wait()?;
    Ok(Outcome::Endless)
}
