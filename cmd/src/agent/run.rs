//! `ironmesh agent run`: runs the agent until a signal stops it.

use std::env;
use std::path::PathBuf;

use ironmesh_agent::AgentSettings;
use ironmesh_command_line::{AgentConfigArgument, Output};
use tokio::signal::unix::{SignalKind, signal};
use tokio_util::sync::CancellationToken;

use crate::log;

/// The name of the systemd credential with the join token.
const TOKEN_CREDENTIAL: &str = "join-token";

/// Runs the agent. With JSON output, the reason of a failure is a line of the log.
pub(crate) async fn run(arguments: &AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    log::init(output);
    log::finish("agent failed", Box::pin(run_until_stopped(arguments)).await, output)
}

async fn run_until_stopped(arguments: &AgentConfigArgument) -> anyhow::Result<()> {
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    let settings = AgentSettings::read(&arguments.config)?;
    let credential = env::var_os("CREDENTIALS_DIRECTORY");
    let credential = credential.map(|directory| PathBuf::from(directory).join(TOKEN_CREDENTIAL));
    let stop = CancellationToken::new();
    let agent = ironmesh_agent::run(settings, credential, stop.clone());
    let signalled = async {
        tokio::select! {
            _ = terminate.recv() => "SIGTERM",
            _ = interrupt.recv() => "SIGINT",
        }
    };
    tokio::select! {
        ended = agent => Ok(ended?),
        name = signalled => {
            tracing::info!(signal = name, "the agent stops; Envoy goes on");
            stop.cancel();
            Ok(())
        }
    }
}
