//! `ironmesh settings`: the effective settings of the control plane.

use ironmesh_command_line::{Output, SettingsArguments};
use ironmesh_views::configuration::settings_text;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Prints the settings.
pub(crate) async fn settings(arguments: &SettingsArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let settings = client.settings().await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&settings)?)?,
        Output::Text => out!("{}", settings_text(&settings))?,
    }
    Ok(())
}
