//! `ironmesh proxy revoke`: withdraws the identity of a proxy for good.

use ironmesh_admin::{RevokeRequest, Revoked};

use crate::cli::{Output, RevokeArguments};
use crate::resolved_settings::ResolvedSettings;
use crate::stdout::outln;

/// Revokes a proxy. A second revocation changes nothing and succeeds.
pub(crate) async fn revoke(arguments: RevokeArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::load(&arguments.config)?.client();
    let request = RevokeRequest { reason: arguments.reason };
    let revoked = client.revoke(&arguments.id, &request).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&revoked)?)?,
        Output::Text => {
            let Revoked { id, name, revocation, is_old } = revoked;
            let old = if is_old { " already" } else { "" };
            outln!("proxy {name} ({id}) was{old} {revocation}")?;
        }
    }
    Ok(())
}
