//! The child process `envoy --mode validate`, which reads a bootstrap and runs nothing.

use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use anyhow::{Context, bail};
use serde_json::Value;
use tempfile::TempDir;
use tokio::process::Command;

/// The most time for one validation. Envoy needs about 10 s for 10,000 clusters.
const TIMEOUT: Duration = Duration::from_secs(120);

/// The longest quoted error of Envoy, in characters.
const MAX_ERROR_CHARS: usize = 500;

/// An Envoy binary, with a folder for its input.
#[derive(Debug)]
pub(super) struct Envoy {
    program: PathBuf,
    /// Readable by this user only: the bootstrap contains keys, if only temporary ones.
    folder: TempDir,
}

/// Envoy's answer to a bootstrap.
#[derive(Debug)]
pub(super) enum Verdict {
    Accepted,
    /// Envoy rejects the bootstrap with this error.
    Rejected(String),
}

impl Envoy {
    pub(super) fn new(program: &Path) -> anyhow::Result<Self> {
        let folder = tempfile::Builder::new().prefix("ironmesh-check-").tempdir()?;
        Ok(Self { program: program.to_owned(), folder })
    }

    /// Validates a bootstrap.
    pub(super) async fn validate(&self, bootstrap: &Value) -> anyhow::Result<Verdict> {
        let file = self.folder.path().join("envoy.json");
        fs_err::write(&file, bootstrap.to_string())?;
        let program = self.program.display();
        let mut command = Command::new(&self.program);
        command.args(["--mode", "validate", "-l", "error", "-c"]).arg(&file).kill_on_drop(true);
        command.stdin(Stdio::null());
        let output = tokio::time::timeout(TIMEOUT, command.output()).await;
        let output = output.with_context(|| {
            format!("`{program} --mode validate` did not end within {} s", TIMEOUT.as_secs())
        })?;
        let output = output.with_context(|| format!("cannot run `{program}`"))?;
        let (stdout, stderr) = (&output.stdout, &output.stderr);
        let printed =
            [stdout, stderr].map(|text| String::from_utf8_lossy(text).into_owned()).concat();
        let file = file.display().to_string();
        if output.status.success() && printed.contains(&format!("configuration '{file}' OK")) {
            return Ok(Verdict::Accepted);
        }
        // Any other output means that this is no Envoy, or that it cannot run.
        match configuration_error(&printed, &file) {
            Some(error) => Ok(Verdict::Rejected(error)),
            None => {
                bail!(
                    "unexpected output of `{program} --mode validate`: {}: {}",
                    output.status,
                    printed.trim()
                )
            }
        }
    }
}

/// Envoy's error about the configuration in `file`, without the prefix of the log line.
fn configuration_error(printed: &str, file: &str) -> Option<String> {
    let (_, error) = printed.split_once(&format!("error initializing configuration '{file}': "))?;
    let words: Vec<&str> = error.split_whitespace().collect();
    Some(words.join(" ").chars().take(MAX_ERROR_CHARS).collect())
}
