//! The errors of the demo.

use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use ironmesh_catalog::text::chain;

use crate::program::DemoEnvoyVersion;

/// The demo could not run, or its check failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// No Envoy was found.
    #[error(
        "no Envoy found: `make demo` fetches one; or set ENVOY_BIN to the path of an Envoy, or install \
         `envoy` on the PATH"
    )]
    NoEnvoy,
    /// The program that ENVOY_BIN names cannot be run.
    #[error("ENVOY_BIN is not an executable file: set it to the path of an Envoy: `{}`", path.display())]
    NotExecutable {
        /// The value of ENVOY_BIN.
        path: PathBuf,
    },
    /// The program does not report a version as Envoy does.
    #[error(
        "`{} --version` does not answer as Envoy does: set ENVOY_BIN to an Envoy: `{answer}`",
        path.display()
    )]
    NotEnvoy {
        /// The program.
        path: PathBuf,
        /// Its answer, or its failure.
        answer: String,
    },
    /// The control plane would reject this Envoy.
    #[error(
        "this Envoy is too old: its version is {found}, and the control plane accepts {oldest} or later: upgrade it, \
         or set ENVOY_BIN: `{}`", path.display()
    )]
    OldEnvoy {
        /// The program.
        path: PathBuf,
        /// Its version.
        found: DemoEnvoyVersion,
        /// The oldest accepted version.
        oldest: DemoEnvoyVersion,
    },
    /// A process listens on a needed port at all addresses.
    #[error(
        "{address} is needed, and port {} is in use at all addresses, by {holder}: end that process and try \
         again", address.port()
    )]
    PortInUse {
        /// The needed address.
        address: SocketAddr,
        /// The process, in words.
        holder: String,
    },
    /// An address cannot be listened on, although it is not in use.
    #[error("cannot listen on {address}: the demo needs 127.0.0.0/8 on the loopback interface")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// No network is free.
    #[error(
        "no network from 127.42.0.0 to 127.42.255.0 is free; in the last one {address} is in use: end the process \
         that listens there (as root, `ss -ltnp` shows it), or other demos"
    )]
    NoNetwork {
        /// The address in use in the last network.
        address: SocketAddr,
    },
    /// The working folder cannot be created.
    #[error(
        "cannot create a working folder in the temporary folder: {problem}: set TMPDIR to a folder that you can write"
    )]
    Folder {
        /// The reason.
        problem: String,
    },
    /// A file of the demo cannot be written or read.
    #[error("cannot write the demo's own files")]
    File(#[source] io::Error),
    /// Signal handlers cannot be installed.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    /// A program cannot be started.
    #[error("cannot start {name}")]
    Start {
        /// The program.
        name: String,
        /// The reason.
        #[source]
        source: io::Error,
    },
    /// A program ended unexpectedly.
    #[error("{name} has ended by itself: {status}; the end of its log:\n{tail}")]
    Ended {
        /// The program.
        name: String,
        /// Its exit status.
        status: String,
        /// The last lines of its log.
        tail: String,
    },
    /// An `ironmesh` command failed.
    #[error("`ironmesh {command}` failed: {answer}")]
    Command {
        /// Its arguments.
        command: String,
        /// Its output on stderr.
        answer: String,
    },
    /// The mesh did not come up.
    #[error("the mesh did not come up: {problem}")]
    NotUp {
        /// The expected and the observed state.
        problem: String,
    },
    /// A step of the check failed.
    #[error("the check did not pass: {step}: {problem}")]
    NotPassed {
        /// The step.
        step: String,
        /// The expected and the observed result.
        problem: String,
    },
    /// A signal ended the check early.
    #[error("a signal ended the check early")]
    Interrupted,
}

impl DemoError {
    /// Whether the logs are kept because they may explain the error.
    pub(crate) fn keeps_logs(&self) -> bool {
        matches!(
            self,
            Self::Start { .. }
                | Self::Ended { .. }
                | Self::Command { .. }
                | Self::NotUp { .. }
                | Self::NotPassed { .. }
        )
    }
}

/// A difference between the expected and the observed state, as text.
///
/// A problem is only reported, never matched on. It is no error type, so every error can become a problem.
#[derive(Debug, Clone)]
pub(crate) struct Problem(pub(crate) String);

impl<E: std::error::Error> From<E> for Problem {
    fn from(error: E) -> Self {
        Self(chain(&error))
    }
}
