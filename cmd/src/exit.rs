//! Exit codes (docs/reference/settings.md), and how a failure is told.

use std::io::{self, Write as _};
use std::process::ExitCode;

use ironmesh_admin::ClientError;
use ironmesh_catalog::text::{chain, escape_output};

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

/// A question that has no answer, for a reason of its own. Where scripts tell answers by the exit code, 1 is
/// one of them; so this ends with 2, or with 4 where the control plane did not answer.
#[derive(Debug, thiserror::Error)]
#[error(transparent)]
pub(crate) struct Unanswered(pub(crate) anyhow::Error);

/// A call that was asked about is not allowed.
pub(crate) const DENIED: Answered = Answered(1);

/// Something would change.
pub(crate) const CHANGES: Answered = Answered(5);

/// The exit code of a run, after its failure is told on stderr.
pub(crate) fn code(result: anyhow::Result<()>) -> ExitCode {
    let Err(error) = result else { return ExitCode::SUCCESS };
    if !error.is::<Answered>() {
        // Where it cannot be written, the exit code says it.
        let _ = writeln!(io::stderr(), "ironmesh: {}", escape_output(&chain(error.as_ref())));
    }
    ExitCode::from(number(&error))
}

/// The exit code of a failure.
pub(crate) fn number(error: &anyhow::Error) -> u8 {
    if let Some(Unanswered(error)) = error.downcast_ref() {
        return match (number(error), error.downcast_ref()) {
            (1, Some(ClientError::Broken(_) | ClientError::Failed(_))) => 4,
            (1, _) => 2,
            (code, _) => code,
        };
    }
    match (error.downcast_ref(), error.downcast_ref()) {
        (Some(Answered(code)), _) => *code,
        (
            _,
            Some(
                ClientError::Unreachable { .. }
                | ClientError::Silent { .. }
                | ClientError::Slow { .. },
            ),
        ) => 4,
        _ if error.is::<Found>() => 3,
        _ if error.is::<Usage>() => 2,
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
        let failed = ClientError::Failed("there is no policy in force yet".to_owned());
        let broken = ClientError::Broken("connection reset".into());
        let slow = ClientError::Slow {
            socket: "admin.sock".into(),
            request: "GET /readyz".to_owned(),
            limit: Duration::from_secs(3),
        };
        let missing = anyhow::Error::from(io::Error::from(io::ErrorKind::NotFound));
        for (as_ever, unanswered, error) in [
            (1, 4, failed.into()),
            (1, 4, broken.into()),
            (4, 4, slow.into()),
            (1, 2, missing.context("cannot read the settings")),
            (1, 2, anyhow!("anything else")),
            (4, 4, ClientError::Silent { socket: "admin.sock".into() }.into()),
            (2, 2, Usage("no such service".to_owned()).into()),
            (3, 3, Found("two findings".to_owned()).into()),
        ] {
            let words = error.to_string();
            assert_eq!(number(&error), as_ever, "{words}");
            assert_eq!(number(&Unanswered(error).into()), unanswered, "{words}");
        }
    }
}
