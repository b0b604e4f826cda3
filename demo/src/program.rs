//! The search for an Envoy, and the check of its version.

use std::fmt;
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::process::Stdio;
use std::time::Duration;

use tokio::process::Command;
use tokio::time::timeout;

use crate::error::DemoError;
use crate::options::DemoOptions;

/// A version of Envoy.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct DemoEnvoyVersion {
    /// The major number, 1 so far.
    pub major: u32,
    /// The number of the quarterly release.
    pub minor: u32,
    /// The number of the patch release.
    pub patch: u32,
}

impl DemoEnvoyVersion {
    /// Parses the output of `envoy --version`: `envoy  version: HASH/1.40.0/Clean/RELEASE/BoringSSL`.
    fn from_answer(answer: &str) -> Option<Self> {
        let (_, build) = answer.split_once("version:")?;
        let number = build.split('/').nth(1)?;
        // A build between two releases is `1.41.0-dev`.
        let number = number.split('-').next()?;
        let mut parts = number.split('.').map(|part| part.parse().ok());
        let version = Self { major: parts.next()??, minor: parts.next()??, patch: parts.next()?? };
        parts.next().is_none().then_some(version)
    }
}

impl fmt::Display for DemoEnvoyVersion {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{}", self.major, self.minor, self.patch)
    }
}

/// An Envoy that the control plane accepts.
#[derive(Debug, Clone)]
pub(crate) struct EnvoyProgram {
    pub(crate) path: PathBuf,
    pub(crate) version: DemoEnvoyVersion,
}

/// Finds Envoy: the one that the environment names, otherwise the one on the search path.
pub(crate) async fn find(options: &DemoOptions) -> Result<EnvoyProgram, DemoError> {
    let path = match &options.envoy {
        Some(path) if is_executable(path) => path.clone(),
        Some(path) => return Err(DemoError::NotExecutable { path: path.clone() }),
        None => std::env::split_paths(&options.search_path)
            .map(|folder| folder.join("envoy"))
            .find(|path| is_executable(path))
            .ok_or(DemoError::NoEnvoy)?,
    };
    // It is started in a different folder.
    let path = std::path::absolute(&path).unwrap_or(path);
    let answer = version_output(&path).await;
    let Some(version) = DemoEnvoyVersion::from_answer(&answer) else {
        let answer = answer.trim().lines().next().unwrap_or("nothing").to_owned();
        return Err(DemoError::NotEnvoy { path, answer });
    };
    if version < options.oldest_envoy {
        return Err(DemoError::OldEnvoy { path, found: version, oldest: options.oldest_envoy });
    }
    Ok(EnvoyProgram { path, version })
}

/// The output of `--version`, or the failure.
async fn version_output(path: &Path) -> String {
    let mut command = Command::new(path);
    command.arg("--version").stdin(Stdio::null()).kill_on_drop(true);
    match timeout(TIMEOUT, command.output()).await {
        Err(_) => format!("no answer within {} s", TIMEOUT.as_secs()),
        Ok(Err(error)) => error.to_string(),
        Ok(Ok(output)) => {
            let text = [output.stdout, output.stderr].concat();
            String::from_utf8_lossy(&text).into_owned()
        }
    }
}

fn is_executable(path: &Path) -> bool {
    fs_err::metadata(path)
        .is_ok_and(|found| found.is_file() && found.permissions().mode() & 0o111 != 0)
}

const TIMEOUT: Duration = Duration::from_secs(10);

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn version_is_parsed_from_envoy_output() {
        let read = |text: &str| DemoEnvoyVersion::from_answer(text).map(|found| found.to_string());
        let answer = "\n./envoy  version: 9e55809337/1.40.0/Clean/RELEASE/BoringSSL\n\n";
        assert_eq!(read(answer).unwrap(), "1.40.0");
        assert_eq!(read("envoy  version: 0/1.41.2-dev/Modified/DEBUG/x").unwrap(), "1.41.2");
        for other in
            ["", "curl 8.1.0", "version: 1.40.0", "version: a/1.40/b", "version: a/1.2.3.4/b"]
        {
            assert_eq!(read(other), None, "{other}");
        }
    }

    #[test]
    fn versions_are_compared_as_numbers() {
        let version = |minor| DemoEnvoyVersion { major: 1, minor, patch: 0 };
        assert!(version(9) < version(39) && version(40) > version(39));
    }
}
