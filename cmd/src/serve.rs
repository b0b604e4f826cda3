//! `ironmesh serve`: runs the control plane until a signal or a failure ends it.

mod reload;
mod signals;

use std::sync::Arc;

use anyhow::bail;
use ironmesh_agent_envoy::Notifier;
use ironmesh_command_line::{Output, ServeArguments};
use ironmesh_config_settings::PolicyLocation;
use ironmesh_control_plane::{LogControl, Running, SignsOfLife};
use tokio_util::sync::CancellationToken;

use crate::log;
use crate::resolved_settings::ResolvedSettings;
use reload::SettingsReload;
use signals::{Signal, Signals};

/// Runs the control plane until a signal stops it. With JSON output, the reason of a failure is a line of the
/// log.
pub(crate) async fn serve(arguments: &ServeArguments, output: Output) -> anyhow::Result<()> {
    // Installed first, so that no signal is lost.
    let signals = Signals::install().and_then(|at_start| Ok((at_start, Signals::install()?)));
    let loaded = ResolvedSettings::load(&arguments.config);
    let is_json = loaded.as_ref().is_ok_and(|resolved| resolved.settings.log.is_json);
    let output = if is_json { Output::Json } else { output };
    let log = log::init(output);
    let result = async { Box::pin(run(arguments, loaded?, signals?, log)).await };
    log::finish("control plane failed", result.await, output)
}

async fn run(
    arguments: &ServeArguments,
    mut resolved: ResolvedSettings,
    (at_start, signals): (Signals, Signals),
    log: Arc<dyn LogControl>,
) -> anyhow::Result<()> {
    // The start may block for as long as it waits for etcd.
    let stop_at_start = tokio::spawn(signals::exit_at_stop(at_start));
    if let Some(policy) = &arguments.policy {
        resolved.policy = PolicyLocation::Folder(policy.clone());
    }
    let settings = SettingsReload::new(&arguments.config, &resolved);
    let options = resolved.options(arguments, log);
    let shutdown = CancellationToken::new();
    let running =
        ironmesh_control_plane::start(&options, settings.values(), shutdown.clone()).await?;
    stop_at_start.abort();
    supervise(running, signals, settings, shutdown).await
}

/// Waits until a signal or a failed task ends everything. Meanwhile it reloads the settings, and reports to systemd.
async fn supervise(
    running: Running,
    mut signals: Signals,
    settings: SettingsReload<'_>,
    shutdown: CancellationToken,
) -> anyhow::Result<()> {
    let Running { mut tasks, heartbeat } = running;
    let systemd = Notifier::from_environment();
    let mut signs_of_life = SignsOfLife::new(systemd.watchdog_interval(), heartbeat);
    // The ports are open. Whether all sources have synced is a different question, which `/readyz` answers: the first
    // policy may come later.
    systemd.ready();
    systemd.status("`ironmesh status` shows the state of the mesh");
    let mut stop = None;
    let mut result = loop {
        tokio::select! {
            signal = signals.next() => match signal {
                Signal::Reload => {
                    systemd.reloading();
                    let outcome = tokio::task::block_in_place(|| settings.reload());
                    systemd.ready();
                    systemd.status(&outcome);
                }
                Signal::Stop(name) => {
                    stop = Some(name);
                    break Ok(());
                }
            },
            () = signs_of_life.due() => systemd.alive(),
            ended = tasks.join_next() => break match ended {
                Some(Ok(Err(error))) => Err(error),
                Some(Err(panicked)) => Err(panicked.into()),
                _ => Err(anyhow::anyhow!("a task of the control plane ended unexpectedly")),
            },
        }
    };
    systemd.stopping();
    tracing::info!(signal = stop, "control plane stopping; proxies keep their last configuration");
    shutdown.cancel();
    loop {
        let ended = tokio::select! {
            ended = tasks.join_next() => ended,
            () = signals.stop() => bail!("stopped by a second signal before the shutdown was complete"),
        };
        let Some(ended) = ended else { return result };
        result = result.and_then(|()| ended.unwrap_or_else(|panicked| Err(panicked.into())));
    }
}
