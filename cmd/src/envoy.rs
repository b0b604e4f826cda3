//! `ironmesh envoy`: runs and reloads the Envoy of this machine.

use anyhow::bail;
use ironmesh_agent::AgentSettings;
use ironmesh_agent_envoy::{ReloadProgress, SupervisorClient};
use ironmesh_command_line::{AgentConfigArgument, Output};

use crate::exit::ExitWith;
use crate::log;
use ironmesh_terminal::stdout::outln;

/// Runs Envoy until a signal stops it.
pub(crate) async fn run(arguments: AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    log::init(output);
    let ended = Box::pin(ironmesh_agent::run_envoy(arguments.config)).await;
    log::finish("supervisor of Envoy failed", ended.map_err(anyhow::Error::from_boxed), output)
}

/// Replaces the running Envoy by a hot restart, and prints the steps.
pub(crate) async fn reload(arguments: &AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    let folder = AgentSettings::read(&arguments.config)?.folder;
    let mut steps = SupervisorClient::new(&folder).reload().await?;
    while let Some(step) = steps.next().await? {
        match output {
            Output::Json => outln!("{}", serde_json::to_string(&step)?)?,
            Output::Text => outln!("{step}")?,
        }
        match step {
            ReloadProgress::Done { .. } => return Ok(()),
            ReloadProgress::Failed { .. } => return Err(ExitWith(1).into()),
            _ => {}
        }
    }
    bail!("the supervisor of Envoy ended before the reload; see its log")
}
