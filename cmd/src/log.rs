//! The log of commands that run for long, such as `serve`, and their end.

use std::sync::Arc;

use ironmesh_catalog::LogDirectives;
use ironmesh_catalog::text::chain;
use ironmesh_command_line::Output;
use ironmesh_control_plane::LogControl;
use ironmesh_terminal::log::{self, LogFilterHandle, LogOutput};

use crate::exit::{self, ExitWith};

/// Begins the log. What it returns changes its level.
pub(crate) fn init(output: Output) -> Arc<dyn LogControl> {
    Arc::new(ProcessLog(log::init(match output {
        Output::Text => LogOutput::Text,
        Output::Json => LogOutput::Json,
    })))
}

/// The log of this process, as the control plane changes its level.
#[derive(Debug)]
struct ProcessLog(LogFilterHandle);

impl LogControl for ProcessLog {
    fn environment(&self) -> Option<&str> {
        self.0.environment()
    }

    fn set(&self, directives: Option<&LogDirectives>) {
        self.0.set(directives);
    }
}

/// Ends the log, with the result of a run. With JSON output, the reason of a failure is a line of the log.
pub(crate) fn finish(
    event: &str,
    result: anyhow::Result<()>,
    output: Output,
) -> anyhow::Result<()> {
    log::finish();
    let Err(error) = result else { return Ok(()) };
    if output == Output::Text {
        return Err(error);
    }
    log::write_failure(event, &chain(error.as_ref()));
    Err(ExitWith(exit::number(&error)).into())
}
