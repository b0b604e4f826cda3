//! Exit codes (docs/reference/settings.md), and how a failure is told.

use std::fmt::Write as _;
use std::process::ExitCode;

use ironmesh_admin::ClientError;

/// The input has findings of severity error. They are printed already.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Found(pub(crate) String);

/// What was asked for cannot be, as it was asked; or the command line does not say what must be said, which
/// only its input shows.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct Usage(pub(crate) String);

/// All is said on stdout, and the answer is one that scripts tell by the exit code.
#[derive(Debug, thiserror::Error)]
#[error("the exit code is {0}")]
pub(crate) struct Answered(pub(crate) u8);

/// A call that was asked about is not allowed.
pub(crate) const DENIED: Answered = Answered(1);

/// Something would change.
pub(crate) const CHANGES: Answered = Answered(5);

/// The exit code of a run, after its failure is told on stderr.
#[expect(clippy::print_stderr, reason = "this is where failures are told")]
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if let Some(Answered(code)) = error.downcast_ref() {
        return ExitCode::from(*code);
    }
    eprintln!("ironmesh: {}", chain(error.as_ref()));
    if error.is::<Found>() {
        return ExitCode::from(3);
    }
    if error.is::<Usage>() {
        return ExitCode::from(2);
    }
    match error.downcast_ref() {
        Some(ClientError::Unreachable { .. }) => ExitCode::from(4),
        _ => ExitCode::FAILURE,
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
