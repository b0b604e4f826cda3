//! `ironmesh serve`: runs the control plane until a signal or a failure ends it.

mod signals;

use anyhow::bail;
use ironmesh_config_settings::PolicyLocation;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::{Output, ServeArguments};
use crate::log;
use crate::resolved_settings::ResolvedSettings;
use signals::Signals;

/// Runs the control plane until a signal stops it. With JSON output, the reason of a failure is a line of the
/// log.
pub(crate) async fn serve(arguments: &ServeArguments, output: Output) -> anyhow::Result<()> {
    log::init(output);
    log::finish("control plane failed", Box::pin(run(arguments)).await, output)
}

async fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    // Installed first, so that a signal during the start already stops the process cleanly.
    let signals = Signals::install()?;
    let mut resolved = ResolvedSettings::load(&arguments.config)?;
    if let Some(policy) = &arguments.policy {
        resolved.policy = PolicyLocation::Folder(policy.clone());
    }
    let options = resolved.options(&arguments.without);
    let shutdown = CancellationToken::new();
    let tasks = ironmesh_control_plane::start(&options, shutdown.clone()).await?;
    supervise(tasks, signals, shutdown).await
}

/// Waits until a signal or a failed task ends everything.
async fn supervise(
    mut tasks: JoinSet<anyhow::Result<()>>,
    mut signals: Signals,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let mut signal = None;
    let mut result = tokio::select! {
        name = signals.stop() => {
            signal = Some(name);
            Ok(())
        }
        ended = tasks.join_next() => match ended {
            Some(Ok(Err(error))) => Err(error),
            Some(Err(panicked)) => Err(panicked.into()),
            _ => Err(anyhow::anyhow!("a task of the control plane ended unexpectedly")),
        },
    };
    tracing::info!(signal, "control plane stopping; proxies keep their last configuration");
    shutdown.cancel();
    loop {
        let ended = tokio::select! {
            ended = tasks.join_next() => ended,
            _ = signals.stop() => bail!("stopped by a second signal before the shutdown was complete"),
        };
        let Some(ended) = ended else { return result };
        result = result.and_then(|()| ended.unwrap_or_else(|panicked| Err(panicked.into())));
    }
}
