//! The patch: everything that a machine needs to run a sidecar.

use std::ffi::OsString;
use std::path::{Path, PathBuf};

use crate::ProgramVersion;
use crate::envoy::{AdminSocketPathTooLong, OverlayError};

/// Everything that a machine needs to run a sidecar.
#[derive(Debug, Clone)]
pub struct Patch {
    /// The files, except the key and the certificates.
    pub files: Vec<File>,
    /// The process to run; none if the sidecar is a library of the application.
    pub process: Option<SidecarProcess>,
    /// The variables in the environment of the process, or of the application without one.
    pub environment: Vec<(&'static str, OsString)>,
    /// The rules by which traffic is intercepted.
    pub interception: Vec<InterceptionRule>,
}

/// A file to write beside the key.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct File {
    /// Its name in the folder.
    pub name: &'static str,
    /// Its content.
    pub content: String,
}

/// A rule by which traffic is intercepted. No driver has any today: the type reserves their place in a [`Patch`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InterceptionRule {}

/// The process of a sidecar: how it is run, restarted and checked.
#[derive(Debug, Clone)]
pub struct SidecarProcess {
    /// The program: a path, or a name in `PATH`.
    pub program: PathBuf,
    /// The arguments of a process that a person runs. It cannot be hot restarted.
    pub standalone: Vec<OsString>,
    /// The arguments of a process under the supervisor, which adds those of its epoch.
    pub supervised: Vec<OsString>,
    /// The oldest version of the program that works.
    pub minimum_version: ProgramVersion,
    /// The check of a configuration file by the program.
    pub validation: Validation,
}

/// The check of a configuration file by the program of the sidecar.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Validation {
    /// The name of the file in [`Patch::files`].
    pub file: &'static str,
    /// The arguments, which the path of the file follows.
    pub arguments: Vec<OsString>,
}

/// A program with its arguments.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ProcessCommand {
    /// The program: a path, or a name in `PATH`.
    pub program: PathBuf,
    /// Its arguments.
    pub arguments: Vec<OsString>,
}

impl SidecarProcess {
    /// The command that a person runs.
    pub fn standalone(&self) -> ProcessCommand {
        self.command(self.standalone.clone())
    }

    /// The command that checks the configuration in the file at `path`, and runs nothing.
    pub fn validation(&self, path: &Path) -> ProcessCommand {
        let mut arguments = self.validation.arguments.clone();
        arguments.push(path.into());
        self.command(arguments)
    }

    fn command(&self, arguments: Vec<OsString>) -> ProcessCommand {
        ProcessCommand { program: self.program.clone(), arguments }
    }
}

/// The reason why a driver made no patch.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PatchError {
    /// The path of the admin socket is too long.
    #[error(transparent)]
    SocketPath(#[from] AdminSocketPathTooLong),
    /// The overlay cannot be merged.
    #[error(transparent)]
    Overlay(#[from] OverlayError),
    /// An upstream has a port of the sidecar's own listeners.
    #[error(
        "upstream `{upstream}` has the local port {port}, which is the sidecar's port `{key}`: choose another port for one of them"
    )]
    PortInUse {
        /// The upstream.
        upstream: String,
        /// The port.
        port: u16,
        /// The key of the sidecar's port in the settings.
        key: &'static str,
    },
}
