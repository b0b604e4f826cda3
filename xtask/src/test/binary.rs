//! Building and running of the test binaries.

use std::io::{BufRead as _, BufReader, Read as _};
use std::path::PathBuf;
use std::process::{Command, Stdio};
use std::thread;
use std::time::Instant;

use anyhow::{Context as _, bail};
use cargo_metadata::{Message, TargetKind};

use super::events::Outcome;
use super::{cargo, root};

/// A test binary.
#[derive(Debug)]
pub(super) struct Binary {
    /// The suite, or `CRATE (unit)`.
    pub(super) name: String,
    program: PathBuf,
    /// The folder of its package, where cargo runs it.
    folder: PathBuf,
}

/// Builds all binaries and tests with one set of features, so that each dependency is compiled once.
pub(super) fn build() -> anyhow::Result<Vec<Binary>> {
    let mut build = cargo()?;
    build.args(["test", "--workspace", "--no-run", "--message-format=json-render-diagnostics"]);
    let mut child = build.stdout(Stdio::piped()).spawn().context("cannot start cargo")?;
    let output = child.stdout.take().context("cargo has no output")?;
    let mut binaries = Vec::new();
    for message in Message::parse_stream(BufReader::new(output)) {
        let Message::CompilerArtifact(artifact) = message? else { continue };
        let Some(program) = artifact.executable.filter(|_| artifact.profile.test) else { continue };
        let folder = artifact.manifest_path.parent().context("a manifest without a folder")?;
        let target = artifact.target;
        let is_suite = target.kind.contains(&TargetKind::Test);
        let name = if is_suite { target.name } else { format!("{} (unit)", target.name) };
        binaries.push(Binary { name, program: program.into(), folder: folder.into() });
    }
    if !child.wait()?.success() {
        bail!("the tests do not compile");
    }
    Ok(binaries)
}

/// Runs the examples in doc comments. Returns whether they passed.
pub(super) fn run_doctests(filters: &[String]) -> anyhow::Result<bool> {
    if !filters.is_empty() {
        return Ok(true);
    }
    let output = cargo()?.args(["test", "--workspace", "--doc", "--quiet"]).output()?;
    if !output.status.success() {
        print!("{}", String::from_utf8_lossy(&output.stdout));
        eprint!("{}", String::from_utf8_lossy(&output.stderr));
    }
    Ok(output.status.success())
}

impl Binary {
    /// Runs its tests with this number of threads.
    pub(super) fn run(&self, threads: usize, filters: &[String]) -> anyhow::Result<Outcome> {
        let begin = Instant::now();
        let mut command = Command::new(&self.program);
        // Only the JSON output has the time of each test. Stable libtest supports it with this variable.
        command
            .args(["-Zunstable-options", "--format=json", "--report-time", "--show-output"])
            .arg(format!("--test-threads={threads}"))
            .args(filters)
            .env("RUSTC_BOOTSTRAP", "1")
            .env("CARGO_MANIFEST_DIR", &self.folder)
            .current_dir(&self.folder)
            .stdin(Stdio::null())
            .stdout(Stdio::piped())
            .stderr(Stdio::piped());
        if std::env::var_os("IRONMESH_BIN").is_none() {
            command.env("IRONMESH_BIN", root()?.join("target/debug/ironmesh"));
        }
        let mut child = command.spawn().with_context(|| format!("cannot run {}", self.name))?;
        let (stdout, stderr) = (child.stdout.take(), child.stderr.take());
        let stderr = thread::spawn(move || {
            let mut text = Vec::new();
            let read = stderr.map(|mut stderr| stderr.read_to_end(&mut text));
            read.transpose().map(|_| String::from_utf8_lossy(&text).into_owned())
        });
        let mut outcome = Outcome::new(&self.name);
        for line in BufReader::new(stdout.context("no output")?).split(b'\n') {
            outcome.add_line(&String::from_utf8_lossy(&line?));
        }
        let status = child.wait()?;
        let stderr = stderr.join().map_err(|_| anyhow::anyhow!("reading stderr panicked"))??;
        outcome.end(status, begin.elapsed(), &stderr);
        Ok(outcome)
    }
}
