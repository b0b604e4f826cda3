//! `ironmesh proxy show`: the details of one proxy, or all its resources.

use ironmesh_command_line::{Output, ShowArguments};
use ironmesh_views::proxies::proxy_text;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Prints the details of a proxy, or all its resources.
pub(crate) async fn show(arguments: &ShowArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    if arguments.resources {
        let config = client.proxy_config(&arguments.id).await?;
        outln!("{}", serde_json::to_string_pretty(&config)?)?;
        return Ok(());
    }
    let proxy = client.proxy(&arguments.id).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&proxy)?)?,
        Output::Text => out!("{}", proxy_text(&proxy))?,
    }
    Ok(())
}
