//! `ironmesh proxy revoke`: shuts a proxy out for good.

use ironmesh_admin::{Client, RevokeRequest, Revoked};

use crate::cli::{Output, RevokeArguments};
use crate::places::Places;
use crate::stdout::outln;

/// Shuts a proxy out. To do it again changes nothing, and is no failure.
pub(crate) async fn revoke(arguments: RevokeArguments, output: Output) -> anyhow::Result<()> {
    let client = Client::new(&Places::find(&arguments.config)?.admin_socket());
    let request = RevokeRequest { reason: arguments.reason };
    let revoked = client.revoke(&arguments.id, &request).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&revoked)?)?,
        Output::Text => {
            let Revoked { id, revocation, is_old } = revoked;
            let old = if is_old { " already" } else { "" };
            outln!("proxy {id} was{old} {revocation}")?;
        }
    }
    Ok(())
}
