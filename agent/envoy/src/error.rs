//! The failures of the supervisor: what failed, where, and what to do.

use std::io;
use std::path::PathBuf;

use ironmesh_sidecar::ProgramVersion;

use crate::plan::BoxError;

/// The reason why a plan cannot be started.
#[derive(Debug, thiserror::Error)]
pub enum CheckError {
    /// The caller produced no plan.
    #[error("cannot determine what to run")]
    Plan(#[source] BoxError),
    /// No folder of `PATH` has the program.
    #[error("`{}` is not in PATH: install Envoy, or set `binary` to its path", program.display())]
    NotInPath {
        /// The program.
        program: PathBuf,
    },
    /// The program does not exist.
    #[error("Envoy's binary `{}` does not exist: install Envoy, or set `binary` to its path", path.display())]
    Missing {
        /// The program.
        path: PathBuf,
    },
    /// The program is not a file.
    #[error("Envoy's binary `{}` is no file: set `binary` to the path of Envoy", path.display())]
    NotFile {
        /// The program.
        path: PathBuf,
    },
    /// The program has no execute permission.
    #[error("Envoy's binary `{}` is not executable: run `chmod +x` on it", path.display())]
    NotExecutable {
        /// The program.
        path: PathBuf,
    },
    /// The program cannot be read.
    #[error("cannot read Envoy's binary `{}`", path.display())]
    Unreadable {
        /// The program.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The header of the file is not that of a program for this machine.
    #[error("this machine cannot run `{}`: {problem}", path.display())]
    Header {
        /// The program.
        path: PathBuf,
        /// What is wrong, and what to do.
        problem: String,
    },
    /// The program gave no answer.
    #[error("`{} {action}` failed", path.display())]
    Run {
        /// The program.
        path: PathBuf,
        /// Its arguments.
        action: &'static str,
        /// The reason.
        source: BoxError,
    },
    /// The program does not print Envoy's version.
    #[error("`{}` is not Envoy: `--version` printed `{output}`; set `binary` to the path of Envoy", path.display())]
    NotEnvoy {
        /// The program.
        path: PathBuf,
        /// The begin of its output.
        output: String,
    },
    /// Envoy is too old.
    #[error("Envoy {release} at `{}` is too old: install {minimum} or later", path.display())]
    TooOld {
        /// The program.
        path: PathBuf,
        /// Its version.
        release: ProgramVersion,
        /// The oldest version that suffices.
        minimum: ProgramVersion,
    },
    /// Envoy rejects the bootstrap.
    #[error("Envoy rejects the bootstrap `{}`: {problem}", bootstrap.display())]
    Bootstrap {
        /// The bootstrap.
        bootstrap: PathBuf,
        /// What Envoy prints.
        problem: String,
    },
    /// A new Envoy would start without configuration, and end the one that serves.
    #[error(
        "the running Envoy is not connected to the control plane: a new one would get no configuration; \
         reload when `ironmesh proxy list` shows this proxy as connected"
    )]
    NoControlPlane,
    /// The two versions of Envoy cannot take part in one hot restart.
    #[error(
        "Envoy {running} and {release} have different hot restart versions ({running_version}, {version}): stop and \
         start the service, which drains it"
    )]
    HotRestartVersion {
        /// The version that runs.
        running: String,
        /// Its protocol.
        running_version: String,
        /// The new version.
        release: ProgramVersion,
        /// Its protocol.
        version: String,
    },
}

/// The failure of the supervisor.
#[derive(Debug, thiserror::Error)]
pub enum SupervisorError {
    /// Another supervisor runs with the same folder.
    #[error("{} already supervises the Envoy of `{}`", pid.map_or_else(|| "another process".to_owned(), |pid| format!("process {pid}")), folder.display())]
    Locked {
        /// The folder.
        folder: PathBuf,
        /// The other supervisor.
        pid: Option<u32>,
    },
    /// A file or a socket of the folder cannot be used.
    #[error("cannot {action} `{}`", path.display())]
    File {
        /// What failed.
        action: &'static str,
        /// The file.
        path: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// The plan cannot be started.
    #[error("cannot start Envoy")]
    Check(#[from] CheckError),
    /// The files of the plan cannot be moved into place.
    #[error("cannot replace the bootstrap; Envoy was not started with the new one")]
    Install(#[source] BoxError),
    /// Envoy cannot be started.
    #[error("cannot start Envoy `{}`", program.display())]
    Spawn {
        /// The program.
        program: PathBuf,
        /// The error of the system.
        source: io::Error,
    },
    /// All base ids of the folder are in use.
    #[error(
        "all base ids of this folder are in use ({first} to {last}): other Envoys run with them, or other users left \
         /dev/shm/envoy_shared_memory_{first}0 and so on; stop those Envoys, or remove these files as root"
    )]
    BaseIds {
        /// The first base id.
        first: u32,
        /// The last base id.
        last: u32,
    },
    /// Signals cannot be received.
    #[error("cannot install signal handlers")]
    Signals(#[source] io::Error),
}
