//! `ironmesh proxy cordon`, `drain` and `uncordon`: take a proxy out of service, and return it.

use ironmesh_api::{CordonChange, CordonRequest};
use ironmesh_command_line::{CordonArguments, Output};
use ironmesh_views::cordons::cordon_text;

use crate::exit::ExitWith;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Makes a change, or prints what it would change. Fails if callers have not ACKed it: it holds all the same.
pub(crate) async fn cordon(
    arguments: CordonArguments,
    change: CordonChange,
    output: Output,
) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let CordonArguments { id, reason, dry_run, .. } = arguments;
    let result = client.change_cordon(&id, change, &CordonRequest { reason, dry_run }).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&result)?)?,
        Output::Text => out!("{}", cordon_text(&result, change))?,
    }
    if result.acked || result.dry_run { Ok(()) } else { Err(ExitWith(1).into()) }
}
