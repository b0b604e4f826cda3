//! `ironmesh agent status`: the status of this machine, problems first.

use ironmesh_agent::{AgentSettings, MachineStatus};
use ironmesh_command_line::{AgentConfigArgument, Output};
use jiff::Timestamp;

use ironmesh_terminal::stdout::{out, outln};

/// Prints the status. Fails if there are problems.
pub(crate) async fn status(arguments: &AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    let settings = AgentSettings::read(&arguments.config)?;
    let status = MachineStatus::collect(&settings, Timestamp::now()).await;
    match output {
        Output::Json => outln!("{:#}", serde_json::to_value(&status)?)?,
        Output::Text => out!("{}", status)?,
    }
    match status.problems.len() {
        0 => Ok(()),
        1 => anyhow::bail!("one thing is wrong"),
        several => anyhow::bail!("{several} things are wrong"),
    }
}
