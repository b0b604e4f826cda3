//! `ironmesh envoy`: runs and reloads the Envoy of this machine.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use anyhow::bail;
use ironmesh_agent::{AgentError, AgentSettings, ProxyControlPlane};
use ironmesh_agent_envoy::{
    EnvoyAdminAddress, EnvoyPlan, EnvoyRelease, LeaveOutcome, ReloadProgress, StagedFiles,
    SupervisorClient, SupervisorOptions, supervise,
};
use ironmesh_catalog::text::chain;
use ironmesh_sidecar::Admin;
use ironmesh_sidecar::envoy::{CONFIGURATION, admin_socket};
use ironmesh_sidecar_folder::{patch_folder, read_workload, stage};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::cli::{AgentConfigArgument, Output};
use crate::exit::{self, ExitWith};
use crate::log;
use crate::stdout::outln;

/// The interval in which the command looks whether the machine is enrolled.
const ENROLLMENT_INTERVAL: Duration = Duration::from_secs(1);

/// The time limit of a leave request. The control plane answers after 15 s at the latest.
const LEAVE_LIMIT: Duration = Duration::from_secs(16);

/// Runs Envoy until a signal stops it.
pub(crate) async fn run(arguments: AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    log::init(output);
    let result = Box::pin(run_supervisor(arguments)).await;
    match (output, result) {
        (Output::Json, Err(error)) => {
            log::write_failure("supervisor of Envoy failed", &chain(error.as_ref()));
            Err(ExitWith(exit::number(&error)).into())
        }
        (_, result) => result,
    }
}

async fn run_supervisor(arguments: AgentConfigArgument) -> anyhow::Result<()> {
    let settings = AgentSettings::read(&arguments.config)?;
    wait_for_enrollment(&settings.folder).await?;
    let folder = settings.folder.clone();
    let options = SupervisorOptions {
        folder,
        plan: Box::new(move || Ok(plan(&AgentSettings::read(&arguments.config)?)?)),
        leave: Box::new(move || {
            let settings = settings.clone();
            Box::pin(async move { Ok(leave(&settings).await?) })
        }),
        clock: Timestamp::now,
    };
    Ok(supervise(options).await?)
}

/// Waits until the agent has enrolled the machine: both may start at the same time.
async fn wait_for_enrollment(folder: &Path) -> anyhow::Result<()> {
    if folder.exists() {
        return Ok(());
    }
    tracing::info!(folder = %folder.display(), "waiting until the machine is enrolled");
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    while !folder.exists() {
        tokio::select! {
            () = sleep(ENROLLMENT_INTERVAL) => {}
            _ = terminate.recv() => return Err(ExitWith(0).into()),
            _ = interrupt.recv() => return Err(ExitWith(0).into()),
        }
    }
    Ok(())
}

/// What to run, by the settings and the record of this machine. The changed files are staged, and are moved into place
/// when the supervisor has checked them.
fn plan(settings: &AgentSettings) -> anyhow::Result<EnvoyPlan> {
    let AgentSettings { folder, sidecar, .. } = settings;
    let patch = patch_folder(folder, sidecar)?;
    let staged = stage(folder, &patch)?;
    let Some(process) = patch.process else {
        bail!("the sidecar of `{}` has no process to run", folder.display());
    };
    let validation = staged.validation().map(|command| command.arguments).unwrap_or_default();
    let staged = Mutex::new(Some(staged));
    let install = move || staged.lock().take().map_or(Ok(()), |staged| Ok(staged.commit()?));
    let envoy = &sidecar.envoy;
    let minimum = process.minimum_version;
    Ok(EnvoyPlan {
        program: process.program,
        bootstrap: folder.join(CONFIGURATION),
        arguments: process.supervised,
        validation,
        staged: StagedFiles(Arc::new(install)),
        environment: patch
            .environment
            .into_iter()
            .map(|(name, value)| (name.into(), value))
            .collect(),
        admin: admin_address(settings)?,
        minimum_version: EnvoyRelease {
            major: minimum.major,
            minor: minimum.minor,
            patch: minimum.patch,
        },
        parent_shutdown_time: envoy.parent_shutdown_time,
        drain_minimum: envoy.drain_minimum,
        drain_maximum: envoy.drain_maximum,
    })
}

fn admin_address(settings: &AgentSettings) -> anyhow::Result<EnvoyAdminAddress> {
    let workload = read_workload(&settings.folder)?;
    Ok(match workload {
        Some(workload) if workload.admin == Admin::Tcp => {
            let port = settings.sidecar.envoy.ports.admin;
            EnvoyAdminAddress::Tcp((workload.local_address(), port).into())
        }
        _ => EnvoyAdminAddress::Socket(admin_socket(&settings.folder)),
    })
}

/// Asks the control plane to direct the callers elsewhere.
async fn leave(settings: &AgentSettings) -> Result<LeaveOutcome, AgentError> {
    let control_plane =
        ProxyControlPlane::open(&settings.folder, &settings.control_plane, LEAVE_LIMIT)?;
    let left = control_plane.leave(false).await?;
    let mut laggards: Vec<_> = left.laggards.iter().map(ToString::to_string).collect();
    if left.more_laggards > 0 {
        laggards.push(format!("{} more", left.more_laggards));
    }
    Ok(LeaveOutcome { is_acked: left.acked, laggards })
}

/// Replaces the running Envoy by a hot restart, and prints the steps.
pub(crate) async fn reload(arguments: &AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    let folder = AgentSettings::load(&arguments.config)?.folder;
    let mut steps = SupervisorClient::new(&folder).reload().await?;
    while let Some(step) = steps.next().await? {
        match output {
            Output::Json => outln!("{}", serde_json::to_string(&step)?)?,
            Output::Text => outln!("{step}")?,
        }
        match step {
            ReloadProgress::Done { .. } => return Ok(()),
            ReloadProgress::Failed { .. } => return Err(ExitWith(1).into()),
            _ => {}
        }
    }
    bail!("the supervisor of Envoy ended before the reload; see its log")
}
