//! `ironmesh finding`: lists active findings, and silences them for a while.

use ironmesh_admin::Client;
use ironmesh_api::{FindingList, SilenceRequest, SilenceView};
use ironmesh_command_line::{
    FindingCommand, FindingListArguments, Output, SilenceArguments, UnsilenceArguments,
};
use ironmesh_views::findings;
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resolved_settings::ResolvedSettings;
use crate::watch::{Watched, watch};
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
    let findings = Findings { client: ResolvedSettings::connect(&arguments.config)?.client() };
    if arguments.watch.watch {
        return watch(&findings, output).await;
    }
    let state = findings.read().await?;
    let now = Timestamp::now();
    match output {
        Output::Json => outln!("{:#}", findings.json(&state, now)?)?,
        Output::Text => out!("{}", findings.text(&state, now))?,
    }
    Ok(())
}

/// The active findings and the silences of the mesh.
struct Findings {
    client: Client,
}

impl Watched for Findings {
    type State = (FindingList, Vec<SilenceView>);

    async fn read(&self) -> anyhow::Result<Self::State> {
        Ok((self.client.findings().await?, self.client.silences().await?.silences))
    }

    fn json(&self, (found, silences): &Self::State, _now: Timestamp) -> serde_json::Result<Value> {
        let FindingList { findings, silenced, .. } = found;
        Ok(json!({ "findings": findings, "silenced": silenced, "silences": silences }))
    }

    fn text(&self, (found, silences): &Self::State, _now: Timestamp) -> String {
        findings::list(&found.findings, silences)
    }
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
