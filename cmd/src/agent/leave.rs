//! `ironmesh agent leave`: drains and ends the Envoy of this machine, and revokes its proxy.

use ironmesh_agent::{AgentSettings, EnvoyEnd, leave_mesh};
use ironmesh_command_line::{AgentConfigArgument, Output};

use ironmesh_terminal::stdout::outln;

/// Leaves the mesh, and prints the steps.
#[expect(clippy::print_stderr, reason = "progress beside the result")]
pub(crate) async fn leave(arguments: &AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    let settings = AgentSettings::read(&arguments.config)?;
    let left = leave_mesh(&settings, |end| match end {
        EnvoyEnd::Drained => eprintln!("Envoy has drained and ended"),
        EnvoyEnd::Unsupervised => {
            eprintln!("no `ironmesh envoy run` runs here: stop an Envoy that you started yourself");
        }
    })
    .await?;
    match output {
        Output::Json => outln!("{:#}", serde_json::to_value(&left)?)?,
        Output::Text => {
            for laggard in &left.laggards {
                outln!("{laggard} has not ACKed the leave in time")?;
            }
            outln!(
                "the proxy has left the mesh and is revoked; remove {} before this machine joins again",
                settings.folder.display()
            )?;
        }
    }
    Ok(())
}
