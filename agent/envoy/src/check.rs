//! The check before each start and reload: the program is Envoy, runs on this machine, is new enough, and accepts the
//! bootstrap.

use std::fs::File;
use std::io::{self, ErrorKind, Read as _};
use std::os::unix::fs::PermissionsExt as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use ironmesh_sidecar::ProgramVersion;

use crate::elf::{HEADER_LENGTH, check_header};
use crate::error::CheckError;
use crate::plan::EnvoyPlan;
use crate::release::version_in_output;
use crate::run::run;

/// The time limit of `--version`.
const VERSION_LIMIT: Duration = Duration::from_secs(10);

/// The time limit of a validation, which resolves names and compiles all regular expressions.
const VALIDATION_LIMIT: Duration = Duration::from_secs(30);

/// The most lines of Envoy's output in an error.
const SHOWN_LINES: usize = 8;

/// A plan that can be started.
#[derive(Debug, Clone)]
pub(crate) struct CheckedPlan {
    pub(crate) plan: EnvoyPlan,
    /// The path of the program.
    pub(crate) program: PathBuf,
    pub(crate) release: ProgramVersion,
    /// The version of the protocol between the epochs of a hot restart. Both must have the same.
    pub(crate) hot_restart_version: String,
}

/// Checks a plan.
pub(crate) async fn check(plan: EnvoyPlan) -> Result<CheckedPlan, CheckError> {
    let program = resolve(&plan.program)?;
    check_file(&program)?;
    let failed = |action: &'static str| {
        let path = program.clone();
        move |source: crate::run::RunError| CheckError::Run {
            path,
            action,
            source: Box::new(source),
        }
    };
    let output = run(&program, ["--version"], VERSION_LIMIT).await.map_err(failed("--version"))?;
    let release = version_in_output(&output.stdout)
        .filter(|_| output.status.success())
        .ok_or_else(|| CheckError::NotEnvoy {
            path: program.clone(),
            output: first_lines(&format!("{}{}", output.stdout, output.stderr)),
        })?;
    if release < plan.minimum_version {
        let minimum = plan.minimum_version;
        return Err(CheckError::TooOld { path: program, release, minimum });
    }
    let action = "--hot-restart-version";
    let output = run(&program, [action], VERSION_LIMIT).await.map_err(failed(action))?;
    // Envoy prints it on stderr.
    let hot_restart_version = last_line(&format!("{}{}", output.stdout, output.stderr));
    validate(&plan, &program).await?;
    Ok(CheckedPlan { plan, program, release, hot_restart_version })
}

async fn validate(plan: &EnvoyPlan, program: &Path) -> Result<(), CheckError> {
    let validated = run(program, &plan.validation, VALIDATION_LIMIT).await;
    let output = validated.map_err(|source| CheckError::Run {
        path: program.to_owned(),
        action: "--mode validate",
        source: Box::new(source),
    })?;
    if output.status.success() {
        return Ok(());
    }
    let bootstrap = plan.bootstrap.clone();
    let problem = problem_lines(&format!("{}{}", output.stderr, output.stdout));
    Err(CheckError::Bootstrap { bootstrap, problem })
}

/// The path of the program: as it is, or from `PATH`.
fn resolve(program: &Path) -> Result<PathBuf, CheckError> {
    if program.components().count() != 1 || program.is_absolute() {
        return Ok(program.to_owned());
    }
    let path = std::env::var_os("PATH").unwrap_or_default();
    let mut candidates = std::env::split_paths(&path).map(|folder| folder.join(program));
    let found = candidates.find(|path| path.is_file());
    found.ok_or_else(|| CheckError::NotInPath { program: program.to_owned() })
}

fn check_file(path: &Path) -> Result<(), CheckError> {
    let unreadable = |source: io::Error| CheckError::Unreadable { path: path.to_owned(), source };
    let metadata = match fs_err::metadata(path) {
        Err(error) if error.kind() == ErrorKind::NotFound => {
            return Err(CheckError::Missing { path: path.to_owned() });
        }
        metadata => metadata.map_err(unreadable)?,
    };
    if !metadata.is_file() {
        return Err(CheckError::NotFile { path: path.to_owned() });
    }
    if metadata.permissions().mode() & 0o111 == 0 {
        return Err(CheckError::NotExecutable { path: path.to_owned() });
    }
    let mut header = Vec::new();
    let length = u64::try_from(HEADER_LENGTH).unwrap_or_default();
    File::open(path)
        .and_then(|file| file.take(length).read_to_end(&mut header))
        .map_err(unreadable)?;
    check_header(&header).map_err(|problem| CheckError::Header {
        path: path.to_owned(),
        problem: problem.to_string(),
    })
}

/// The last line that Envoy prints itself. Its log is beside it: warnings about the cgroup, for example.
fn last_line(output: &str) -> String {
    let mut lines = output.lines().map(str::trim);
    let line = lines.rfind(|line| !line.is_empty() && !line.starts_with('['));
    line.unwrap_or_default().to_owned()
}

/// The first lines of a text, as one line.
fn first_lines(text: &str) -> String {
    let lines = text.lines().map(str::trim).filter(|line| !line.is_empty());
    let lines: Vec<_> = lines.take(SHOWN_LINES).collect();
    lines.join(" / ").chars().take(1000).collect()
}

/// The lines of Envoy's log that state a problem; all lines if none does.
fn problem_lines(log: &str) -> String {
    let is_problem = |line: &&str| line.contains("[critical]") || line.contains("[error]");
    let problems: Vec<_> = log.lines().filter(is_problem).collect();
    // The text follows the source position in brackets: `[…][…][critical][main] [source/server/…] text`.
    let text = |line: &&str| -> String {
        let parts: Vec<_> = line.splitn(3, "] ").collect();
        parts.last().map_or_else(String::new, |text| (*text).to_owned())
    };
    if problems.is_empty() {
        return first_lines(log);
    }
    first_lines(&problems.iter().map(text).collect::<Vec<_>>().join("\n"))
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use super::*;
    use crate::local_http::LocalAddress;
    use crate::plan::{BoxError, PlanFiles};

    #[test]
    fn problems_are_shown_without_log_prefixes() {
        let log = "[2026-11-23 22:49:05][1][info][main] [source/server/server.cc:989] runtime: {}\n\
                   [2026-11-23 22:49:05][1][critical][main] [source/server/a.cc:76] error in [0]: no such field\n";
        assert_eq!(problem_lines(log), "error in [0]: no such field");
        assert_eq!(problem_lines("plain\n\nwords\n"), "plain / words");
    }

    #[test]
    fn hot_restart_version_is_read_beside_log_lines() {
        let log = "[2026-11-24 00:05:02.406][140][warning][misc] [source/a.cc:293] Expected cgroup v1 files\n";
        for output in [format!("{log}11.104\n"), format!("11.104\n{log}"), "11.104".to_owned()] {
            assert_eq!(last_line(&output), "11.104", "{output}");
        }
    }

    /// Files that are in place already.
    #[derive(Debug)]
    struct InPlace;

    impl PlanFiles for InPlace {
        fn install(&self) -> Result<(), BoxError> {
            Ok(())
        }

        fn revert(&self) -> Result<(), BoxError> {
            Ok(())
        }
    }

    #[tokio::test]
    async fn unusable_programs_are_rejected_with_the_reason() {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("envoy");
        let plan = |program: &Path| EnvoyPlan {
            program: program.to_owned(),
            bootstrap: folder.path().join("envoy.yaml"),
            arguments: Vec::new(),
            validation: Vec::new(),
            files: Arc::new(InPlace),
            environment: Vec::new(),
            admin: LocalAddress::Socket(folder.path().join("admin.sock")),
            minimum_version: "1.39.0".parse().unwrap(),
            parent_shutdown_time: Duration::from_secs(60),
            drain_minimum: Duration::from_secs(5),
            drain_maximum: Duration::from_secs(60),
        };
        let problem = async |program: &Path| check(plan(program)).await.unwrap_err().to_string();
        assert!(problem(&path).await.contains("does not exist"));
        assert!(problem(Path::new("no-such-envoy")).await.contains("not in PATH"));
        assert!(problem(folder.path()).await.contains("is no file"));
        fs_err::write(&path, "#!/bin/sh\n").unwrap();
        assert!(problem(&path).await.contains("not executable"));
        let mode = std::fs::Permissions::from_mode(0o755);
        fs_err::set_permissions(&path, mode).unwrap();
        assert!(problem(&path).await.contains("it is a script"));
        let cat = ["/bin/cat", "/usr/bin/cat"].iter().map(Path::new).find(|path| path.exists());
        let error = problem(cat.unwrap()).await;
        assert!(error.contains("is not Envoy"), "{error}");
    }
}
