//! `ironmesh proxy versions`: how many proxies have which version of Envoy and of the agent.

use ironmesh_command_line::{Output, VersionsArguments};
use ironmesh_views::versions::versions_text;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Prints the versions of all proxies in use.
pub(crate) async fn versions(arguments: &VersionsArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let report = client.versions().await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&report)?)?,
        Output::Text => out!("{}", versions_text(&report))?,
    }
    Ok(())
}
