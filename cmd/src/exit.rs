//! Exit codes (docs/reference/settings.md), and the printing of failures.

use std::io::{self, Write as _};
use std::process::ExitCode;

use ironmesh_admin::ClientError;
use ironmesh_agent::AgentError;
use ironmesh_catalog::text::{chain, escape_output};

/// The input, or the mesh, has findings of severity error. The command has printed them already.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct InvalidInput(pub(crate) String);

/// The command line is invalid in a way that only the input or the state of the mesh shows.
#[derive(Debug, thiserror::Error)]
#[error("{0}")]
pub(crate) struct UsageError(pub(crate) String);

/// The command has printed its whole result on stdout, and only the exit code is left to report.
#[derive(Debug, thiserror::Error)]
#[error("the exit code is {0}")]
pub(crate) struct ExitWith(pub(crate) u8);

/// A question without an answer, for the wrapped reason.
///
/// Exit code 1 is an answer of such a command ("denied"). Without an answer the command therefore exits with 2,
/// or with 4 if the control plane did not answer.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct NoAnswer(pub(crate) anyhow::Error);

/// The exit of `policy explain` for a denied call.
pub(crate) const DENIED: ExitWith = ExitWith(1);

/// The exit of `policy plan --detailed-exitcode` for a policy with changes.
pub(crate) const CHANGES: ExitWith = ExitWith(5);

/// Prints the failure of a run on stderr, and returns the exit code.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if !error.is::<ExitWith>() {
        // If stderr cannot be written, the exit code alone reports the failure.
        let _ = writeln!(io::stderr(), "ironmesh: {}", escape_output(&chain(error.as_ref())));
    }
    ExitCode::from(number(&error))
}

/// The exit code of a failure.
pub(crate) fn number(error: &anyhow::Error) -> u8 {
    if let Some(NoAnswer(error)) = error.downcast_ref() {
        return match (number(error), error.downcast_ref()) {
            (1, Some(ClientError::Broken(_) | ClientError::Failed(_))) => 4,
            (1, _) => 2,
            (code, _) => code,
        };
    }
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(ExitWith(code)), _) => *code,
        (
            _,
            Some(
                ClientError::Unreachable { .. }
                | ClientError::SocketGone { .. }
                | ClientError::Silent { .. }
                | ClientError::Slow { .. },
            ),
        ) => 4,
        _ if error.downcast_ref().is_some_and(AgentError::is_unreachable) => 4,
        _ if error.is::<InvalidInput>() => 3,
        _ if error.is::<UsageError>() => 2,
        _ => 1,
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use anyhow::anyhow;

    use super::*;

    #[test]
    fn unanswered_question_never_exits_with_code_one() {
        let failed = ClientError::Failed("no policy is active yet".to_owned());
        let broken = ClientError::Broken("connection reset".into());
        let slow = ClientError::Slow {
            place: "admin.sock".into(),
            request: "GET /readyz".to_owned(),
            limit: Duration::from_secs(3),
        };
        let missing = anyhow::Error::from(io::Error::from(io::ErrorKind::NotFound));
        for (plain, unanswered, error) in [
            (1, 4, failed.into()),
            (1, 4, broken.into()),
            (4, 4, slow.into()),
            (1, 2, missing.context("cannot read the settings")),
            (1, 2, anyhow!("anything else")),
            (4, 4, ClientError::Silent { place: "admin.sock".into() }.into()),
            (2, 2, UsageError("no such service".to_owned()).into()),
            (3, 3, InvalidInput("two findings".to_owned()).into()),
        ] {
            let words = error.to_string();
            assert_eq!(number(&error), plain, "{words}");
            assert_eq!(number(&NoAnswer(error).into()), unanswered, "{words}");
        }
    }
}
