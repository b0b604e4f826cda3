//! The log of commands that run for long, such as `serve`, and their end.

use ironmesh_catalog::text::chain;
use ironmesh_command_line::Output;
use ironmesh_terminal::log::{self, LogOutput};

use crate::exit::{self, ExitWith};

/// Begins the log.
pub(crate) fn init(output: Output) {
    log::init(match output {
        Output::Text => LogOutput::Text,
        Output::Json => LogOutput::Json,
    });
}

/// The result of a run. With JSON output, the reason of a failure is a line of the log.
pub(crate) fn finish(
    event: &str,
    result: anyhow::Result<()>,
    output: Output,
) -> anyhow::Result<()> {
    let Err(error) = result else { return Ok(()) };
    if output == Output::Text {
        return Err(error);
    }
    log::write_failure(event, &chain(error.as_ref()));
    Err(ExitWith(exit::number(&error)).into())
}
