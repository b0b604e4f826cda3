//! `ironmesh policy access`: which accounts may call which service ports.

use ironmesh_command_line::{AccessArguments, Output};
use ironmesh_views::access::matrix;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Prints the access of all accounts.
pub(crate) async fn access(arguments: &AccessArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let page = client.access(arguments.namespace.as_ref()).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&page)?)?,
        Output::Text => out!("{}", matrix(&page))?,
    }
    Ok(())
}
