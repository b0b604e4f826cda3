//! `ironmesh finding`: lists active findings, and silences them for a while.

use ironmesh_api::SilenceRequest;
use ironmesh_command_line::{
    FindingCommand, FindingListArguments, Output, SilenceArguments, UnsilenceArguments,
};
use ironmesh_views::findings;
use serde_json::json;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Runs a command about findings.
pub(crate) async fn run(command: FindingCommand, output: Output) -> anyhow::Result<()> {
    match command {
        FindingCommand::List(arguments) => list(&arguments, output).await,
        FindingCommand::Silence(arguments) => silence(arguments, output).await,
        FindingCommand::Unsilence(arguments) => unsilence(&arguments, output).await,
    }
}

async fn list(arguments: &FindingListArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let found = client.findings().await?;
    let silences = client.silences().await?.silences;
    match output {
        Output::Json => outln!(
            "{:#}",
            json!({ "findings": found.findings, "silenced": found.silenced, "silences": silences })
        )?,
        Output::Text => out!("{}", findings::list(&found.findings, &silences))?,
    }
    Ok(())
}

async fn silence(arguments: SilenceArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let request = SilenceRequest {
        code: arguments.code.code.to_string(),
        object: arguments.object,
        reason: arguments.reason,
        expires_at: arguments.until,
        seconds: arguments.length.map(|length| length.as_secs()),
    };
    let silence = client.silence(&request).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&silence)?)?,
        Output::Text => out!("{}", findings::silenced(&silence))?,
    }
    Ok(())
}

async fn unsilence(arguments: &UnsilenceArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::connect(&arguments.config)?.client();
    let silence = client.remove_silence(&arguments.id).await?;
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&silence)?)?,
        Output::Text => out!("{}", findings::unsilenced(&silence))?,
    }
    Ok(())
}
