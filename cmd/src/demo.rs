//! `ironmesh demo`, and the hidden commands through which it starts its programs.

use std::path::PathBuf;

use anyhow::Context;
use ironmesh_control_plane::OLDEST_ENVOY;
use ironmesh_demo::{EnvoyVersion, Mode, Options, caretaker, tether};
use jiff::Zoned;

use crate::cli::{DemoArguments, DemoCaretakerArguments, DemoChildArguments, Output};
use crate::color;

/// Runs the demo. It must be called on the main thread: with it the demo's programs die.
pub(crate) async fn demo(arguments: &DemoArguments, output: Output) -> anyhow::Result<()> {
    let set = |name: &str| std::env::var_os(name).filter(|value| !value.is_empty());
    let options = Options {
        mode: if arguments.check { Mode::Check } else { Mode::Live },
        output: match output {
            Output::Text => ironmesh_demo::Output::Text,
            Output::Json => ironmesh_demo::Output::Json,
        },
        is_colourless: !color::is_allowed(),
        is_screen: color::can_redraw(&std::io::stdout()),
        ironmesh: std::env::current_exe().context("cannot tell where `ironmesh` itself is")?,
        tether: "demo-child",
        caretaker: "demo-caretaker",
        envoy: set("ENVOY_BIN").map(PathBuf::from),
        search_path: set("PATH").unwrap_or_default(),
        oldest_envoy: EnvoyVersion {
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
    let program = command.next().context("no program is named")?;
    let rest: Vec<_> = command.collect();
    Err(tether::become_program(arguments.parent, program, &rest).into())
}

/// Takes care of the demo's folder.
pub(crate) fn caretaker(arguments: &DemoCaretakerArguments) -> anyhow::Result<()> {
    caretaker::run(&arguments.parent).context("cannot remove the demo's folder")
}
