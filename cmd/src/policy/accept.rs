//! `ironmesh policy accept`: activates a held-back removal from the policy folder.

use ironmesh_api::{AcceptRemovalRequest, AcceptedRemoval};
use ironmesh_command_line::{AcceptRemovalArguments, Output};

use super::current_user;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::outln;

/// Accepts the held-back removal.
pub(super) async fn accept(
    arguments: AcceptRemovalArguments,
    output: Output,
) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let request = AcceptRemovalRequest { revision: arguments.revision, by: Some(current_user()) };
    let accepted = client.accept_removal(&request).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&accepted)?)?,
        Output::Text => {
            let AcceptedRemoval { policy, removals } = accepted;
            outln!("revision {} is active; it removes {removals}", policy.revision)?;
        }
    }
    Ok(())
}
