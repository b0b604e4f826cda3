//! `ironmesh serve`: runs the control plane until a signal or a failure ends it.

mod log;
mod signals;

use anyhow::bail;
use ironmesh_catalog::text::chain;
use ironmesh_config_settings::PolicyPlace;
use tokio::task::JoinSet;
use tokio_util::sync::CancellationToken;

use crate::cli::{Output, ServeArguments};
use crate::exit::{self, Answered};
use crate::places::Places;
use signals::Signals;

/// Runs the control plane until it is told to stop. With JSON as output, the reason of a failure is a line of the
/// log like all others.
pub(crate) async fn serve(arguments: &ServeArguments, output: Output) -> anyhow::Result<()> {
    log::init(output);
    let result = Box::pin(run(arguments)).await;
    match (output, result) {
        (Output::Json, Err(error)) => {
            log::write_failure(&chain(error.as_ref()));
            Err(Answered(exit::number(&error)).into())
        }
        (_, result) => result,
    }
}

async fn run(arguments: &ServeArguments) -> anyhow::Result<()> {
    // From the first moment on, a signal ends us in good order.
    let signals = Signals::install()?;
    let mut places = Places::find(&arguments.config)?;
    if let Some(policy) = &arguments.policy {
        places.policy = PolicyPlace::Folder(policy.clone());
    }
    let options = places.options(&arguments.without);
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
            _ => Err(anyhow::anyhow!("a part of the control plane ended by itself")),
        },
    };
    tracing::info!(signal, "the control plane is stopping; proxies run on with what they have");
    shutdown.cancel();
    loop {
        let ended = tokio::select! {
            ended = tasks.join_next() => ended,
            _ = signals.stop() => bail!("told to stop at once, before all was in order"),
        };
        let Some(ended) = ended else { return result };
        result = result.and_then(|()| ended.unwrap_or_else(|panicked| Err(panicked.into())));
    }
}
