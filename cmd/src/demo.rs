//! `ironmesh demo`, and the hidden commands with which it starts its programs.

use std::path::PathBuf;

use anyhow::Context;
use ironmesh_command_line::{DemoArguments, DemoCaretakerArguments, DemoChildArguments, Output};
use ironmesh_control_plane::OLDEST_ENVOY;
use ironmesh_demo::{DemoEnvoyVersion, DemoMode, DemoOptions, DemoOutput, caretaker, tether};
use jiff::Zoned;

use ironmesh_terminal::color;

/// Runs the demo. Call it on the main thread: the demo's programs die with that thread.
pub(crate) async fn demo(arguments: &DemoArguments, output: Output) -> anyhow::Result<()> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let options = DemoOptions {
        mode: if arguments.check { DemoMode::Check } else { DemoMode::Live },
        output: match output {
            Output::Text => DemoOutput::Text,
            Output::Json => DemoOutput::Json,
        },
        is_colorless: !color::is_allowed(),
        is_screen: color::can_redraw(&std::io::stdout()),
        ironmesh: std::env::current_exe()
            .context("cannot find the path of the running `ironmesh` executable")?,
        tether: "demo-child",
        caretaker: "demo-caretaker",
        envoy: set("ENVOY_BIN").map(PathBuf::from),
        search_path: set("PATH").unwrap_or_default(),
        oldest_envoy: DemoEnvoyVersion {
            major: OLDEST_ENVOY.major,
            minor: OLDEST_ENVOY.minor,
            patch: OLDEST_ENVOY.patch,
        },
        temporary: std::env::temp_dir(),
        now: Zoned::now,
    };
    Ok(Box::pin(ironmesh_demo::run(options)).await?)
}

/// Becomes a program that dies with the demo.
pub(crate) fn child(arguments: DemoChildArguments) -> anyhow::Result<()> {
    let mut command = arguments.command.into_iter();
    let program = command.next().context("the command line names no program")?;
    let rest: Vec<_> = command.collect();
    Err(tether::become_program(arguments.parent, program, &rest).into())
}

/// Creates the demo's folder, and removes it when the demo ends.
pub(crate) fn caretaker(arguments: &DemoCaretakerArguments) -> anyhow::Result<()> {
    caretaker::run(&arguments.parent).context("cannot remove the demo's folder")
}
