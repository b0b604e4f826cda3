//! `ironmesh log level`: shows the level of a control plane's log, or changes it for a while.

use ironmesh_api::LogLevelRequest;
use ironmesh_command_line::{LogCommand, LogLevelArguments, Output};
use ironmesh_terminal::stdout::{out, outln};
use ironmesh_views::log_level;
use jiff::Timestamp;

use crate::resolved_settings::ResolvedSettings;

/// Runs a command about the log.
pub(crate) async fn run(command: LogCommand, output: Output) -> anyhow::Result<()> {
    let LogCommand::Level(LogLevelArguments { config, level, length }) = command;
    let client = ResolvedSettings::connect(&config)?.client();
    let view = match level {
        None => client.log_level().await?,
        Some(level) => {
            let seconds = length.map(|length| length.as_secs());
            client.set_log_level(&LogLevelRequest { level, seconds }).await?
        }
    };
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&view)?)?,
        Output::Text => out!("{}", log_level::text(&view, Timestamp::now()))?,
    }
    Ok(())
}
