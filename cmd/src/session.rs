//! `ironmesh ui` and `ironmesh session`: logins of browsers.

use ironmesh_api::LinkRequest;
use ironmesh_command_line::{
    Output, SessionCommand, SessionListArguments, SessionRevokeArguments, UiArguments,
};
use ironmesh_terminal::stdout::{out, outln};
use ironmesh_views::sessions;
use jiff::Timestamp;

use crate::resolved_settings::ResolvedSettings;

/// Prints a login link.
pub(crate) async fn ui(arguments: &UiArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let link = client.create_login_link(&LinkRequest { role: arguments.role }).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&link)?)?,
        Output::Text => out!("{}", sessions::link(&link, Timestamp::now()))?,
    }
    Ok(())
}

/// Runs a command of `ironmesh session`.
pub(crate) async fn run(command: SessionCommand, output: Output) -> anyhow::Result<()> {
    match command {
        SessionCommand::List(arguments) => list(&arguments, output).await,
        SessionCommand::Revoke(arguments) => revoke(&arguments, output).await,
    }
}

async fn list(arguments: &SessionListArguments, output: Output) -> anyhow::Result<()> {
    let list = ResolvedSettings::connect(&arguments.config)?.client().sessions().await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        Output::Text => out!("{}", sessions::table(&list, Timestamp::now()))?,
    }
    Ok(())
}

async fn revoke(arguments: &SessionRevokeArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let session = client.revoke_session(&arguments.id).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&session)?)?,
        Output::Text => {
            outln!("login {} of {} is {}", session.id, session.user, session.state.word())?;
        }
    }
    Ok(())
}
