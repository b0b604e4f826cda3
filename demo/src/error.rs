//! Why the demo could not run, or did not pass.

use std::fmt::Write as _;
use std::io;
use std::net::SocketAddr;
use std::path::PathBuf;

use crate::program::EnvoyVersion;

/// The demo could not run, or its check did not pass.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DemoError {
    /// There is no Envoy.
    #[error(
        "no Envoy is found: `make demo` fetches one, or set ENVOY_BIN to the path of one, or \
         install `envoy` on the PATH"
    )]
    NoEnvoy,
    /// What is named as Envoy cannot be run.
    #[error("ENVOY_BIN is not an executable file: set it to the path of an Envoy: `{}`", path.display())]
    NotExecutable {
        /// What ENVOY_BIN says.
        path: PathBuf,
    },
    /// What is taken for Envoy does not say its version as Envoy does.
    #[error(
        "`{} --version` does not answer as Envoy does: set ENVOY_BIN to another: `{answer}`",
        path.display()
    )]
    NotEnvoy {
        /// The program.
        path: PathBuf,
        /// What it answered, or how it failed.
        answer: String,
    },
    /// The control plane would not let this Envoy in.
    #[error(
        "this Envoy is too old, {found}; {oldest} is the oldest that may join: upgrade it, or set \
         ENVOY_BIN to another: `{}`", path.display()
    )]
    OldEnvoy {
        /// The program.
        path: PathBuf,
        /// What it is.
        found: EnvoyVersion,
        /// What it must be at least.
        oldest: EnvoyVersion,
    },
    /// A port that is needed is in use at all addresses.
    #[error(
        "{address} is needed, and port {} is in use at all addresses, by {holder}: end that, and \
         try again", address.port()
    )]
    PortInUse {
        /// What is needed.
        address: SocketAddr,
        /// Who has it, in words.
        holder: String,
    },
    /// An address cannot be listened on, and not because somebody else does.
    #[error("cannot listen on {address}: the demo needs 127.0.0.0/8 on the loopback interface")]
    Listen {
        /// The address.
        address: SocketAddr,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// No network is free.
    #[error(
        "no network from 127.42.0.0 to 127.42.255.0 is free; the last was not because of \
         {address}: end what listens there (as root, `ss -ltnp` tells who), or other demos"
    )]
    NoNetwork {
        /// What was in use in the last one.
        address: SocketAddr,
    },
    /// The working folder cannot be had.
    #[error(
        "cannot make a working folder in the temporary one: {problem}: set TMPDIR to another that you may write"
    )]
    Folder {
        /// Why not.
        problem: String,
    },
    /// A file of the demo cannot be written or read.
    #[error("cannot write the demo's own files")]
    File(#[source] io::Error),
    /// Signals cannot be listened for.
    #[error("cannot listen for signals")]
    Signals(#[source] io::Error),
    /// A program cannot be started.
    #[error("cannot start {name}")]
    Start {
        /// What it is.
        name: String,
        /// Why not.
        #[source]
        source: io::Error,
    },
    /// A program ended by itself.
    #[error("{name} has ended by itself: {status}; the end of its log:\n{tail}")]
    Ended {
        /// What it is.
        name: String,
        /// How it ended.
        status: String,
        /// The last lines of its log.
        tail: String,
    },
    /// A command of ours failed.
    #[error("`ironmesh {command}` failed: {answer}")]
    Command {
        /// Its arguments.
        command: String,
        /// What it said.
        answer: String,
    },
    /// The mesh did not come up.
    #[error("the mesh did not come up: {problem}")]
    NotUp {
        /// What was waited for, and seen.
        problem: String,
    },
    /// The check did not pass.
    #[error("the check did not pass: {step}: {problem}")]
    NotPassed {
        /// Which step.
        step: String,
        /// What was wanted, and seen.
        problem: String,
    },
    /// The check was told to end before it was over.
    #[error("the check was ended before it was over")]
    Interrupted,
}

impl DemoError {
    /// Whether the logs of what ran may tell more.
    pub(crate) fn is_for_the_logs(&self) -> bool {
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

/// Something was not as it should be: what was wanted, and what was seen.
///
/// It is text, since all that becomes of it is to be told. So it is no error itself, and every error
/// can become one.
#[derive(Debug, Clone)]
pub(crate) struct Problem(pub(crate) String);

impl<E: std::error::Error> From<E> for Problem {
    fn from(error: E) -> Self {
        Self(chain(&error))
    }
}

/// An error with all its causes, in a line.
pub(crate) fn chain(error: &dyn std::error::Error) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        // Writing to a string does not fail.
        let _ = write!(text, ": {cause}");
        source = cause.source();
    }
    text
}
