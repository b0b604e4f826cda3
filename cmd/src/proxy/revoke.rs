//! `ironmesh proxy revoke`: withdraws the identity of proxies for good.

use ironmesh_api::RevokeRequest;
use ironmesh_command_line::{Output, RevokeArguments};
use ironmesh_views::revocation::revocation_text;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Revokes proxies, or prints what that would change. A second revocation changes nothing and succeeds.
pub(crate) async fn revoke(arguments: RevokeArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let RevokeArguments { proxies, reason, dry_run, .. } = arguments;
    let revoked = client.revoke(&RevokeRequest { proxies, reason, dry_run }).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&revoked)?)?,
        Output::Text => out!("{}", revocation_text(&revoked))?,
    }
    Ok(())
}
