//! `ironmesh policy accept`: activates a removal from the policy folder that is held back.

use ironmesh_admin::{AcceptRemovalRequest, AcceptedRemoval, Client};

use super::who;
use crate::cli::{AcceptRemovalArguments, Output};
use crate::places::Places;
use crate::stdout::outln;

pub(super) async fn accept(
    arguments: AcceptRemovalArguments,
    output: Output,
) -> anyhow::Result<()> {
    let client = Client::new(&Places::find(&arguments.config)?.admin_socket());
    let request = AcceptRemovalRequest { revision: arguments.revision, by: Some(who()) };
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
