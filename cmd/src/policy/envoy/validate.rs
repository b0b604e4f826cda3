//! `envoy --mode validate`: Envoy reads a bootstrap, and runs nothing.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// How long Envoy may read one bootstrap. It takes some 10 s for 10,000 clusters.
const PATIENCE: Duration = Duration::from_secs(120);

/// How much of what Envoy says is told, in characters.
const MOST_WORDS: usize = 500;

/// An Envoy that can be asked.
#[derive(Debug)]
pub(super) struct Envoy {
    program: PathBuf,
    /// For its eyes only: there are keys in what it reads, although throw-away ones.
    folder: TempDir,
}

/// What Envoy says of a bootstrap.
#[derive(Debug)]
pub(super) enum Verdict {
    Accepted,
    /// It refuses it, in these words.
    Refused(String),
}

impl Envoy {
    pub(super) fn new(program: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ironmesh-check-").tempdir()?;
        Ok(Self { program: program.to_owned(), folder })
    }

    /// Lets Envoy read a bootstrap.
    pub(super) async fn validate(&self, bootstrap: &Value) -> anyhow::Result<Verdict> {
        let file = self.folder.path().join("envoy.json");
        fs_err::write(&file, bootstrap.to_string())?;
        let program = self.program.display();
        let mut command = Command::new(&self.program);
        command.args(["--mode", "validate", "-l", "error", "-c"]).arg(&file).kill_on_drop(true);
        command.stdin(Stdio::null());
        let output = tokio::time::timeout(PATIENCE, command.output()).await;
        let output = output.with_context(|| {
            format!("`{program} --mode validate` did not end within {} s", PATIENCE.as_secs())
        })?;
        let output = output.with_context(|| format!("cannot run `{program}`"))?;
        let (stdout, stderr) = (&output.stdout, &output.stderr);
        let said = [stdout, stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
        let file = file.display().to_string();
        if output.status.success() && said.contains(&format!("configuration '{file}' OK")) {
            return Ok(Verdict::Accepted);
        }
        // Whatever else it says, it is no Envoy, or one that cannot run.
        match words(&said, &file) {
            Some(words) => Ok(Verdict::Refused(words)),
            None => bail!("`{program} --mode validate` said: {}: {}", output.status, said.trim()),
        }
    }
}

/// What Envoy says of the configuration in `file`, without what stands before it in the log.
fn words(said: &str, file: &str) -> Option<String> {
    let (_, words) = said.split_once(&format!("error initializing configuration '{file}': "))?;
    let words: Vec<&str> = words.split_whitespace().collect();
    Some(words.join(" ").chars().take(MOST_WORDS).collect())
}
