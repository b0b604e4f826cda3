//! The Envoy of this machine under its supervisor: what the settings and the record of the workload make of it, and the leave
//! request of its drain.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_agent_envoy::local_http::LocalAddress;
use ironmesh_agent_envoy::{
    BoxError, EnvoyPlan, LeaveOutcome, Notifier, StagedFiles, SupervisorOptions, supervise,
};
use ironmesh_sidecar::Admin;
use ironmesh_sidecar::envoy::{CONFIGURATION, admin_socket};
use ironmesh_sidecar_folder::{PatchFolderError, patch_folder, read_workload, stage};
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::signal::unix::{SignalKind, signal};
use tokio::time::sleep;

use crate::control_plane::ProxyControlPlane;
use crate::error::AgentError;
use crate::mesh_check::check_mesh;
use crate::settings::AgentSettings;

/// The interval in which the supervisor looks whether the machine is enrolled.
const ENROLLMENT_INTERVAL: Duration = Duration::from_secs(1);

/// The time limit of a leave request. The control plane answers after 15 s at the latest.
const LEAVE_LIMIT: Duration = Duration::from_secs(16);

/// Runs the Envoy of this machine by the settings in `config`, which are read again at each start and reload. Waits until
/// the machine is enrolled first: agent and supervisor may start at the same time.
pub async fn run_envoy(config: PathBuf) -> Result<(), BoxError> {
    let settings = AgentSettings::read(&config)?;
    check_mesh(&settings)?;
    if !is_enrolled(&settings.folder).await? {
        return Ok(());
    }
    let options = SupervisorOptions {
        folder: settings.folder.clone(),
        plan: Box::new(move || plan(&AgentSettings::read(&config)?)),
        leave: Box::new(move || {
            let settings = settings.clone();
            Box::pin(async move { Ok(leave(&settings).await?) })
        }),
        clock: Timestamp::now,
    };
    Ok(supervise(options).await?)
}

/// Waits until the machine is enrolled; false if a signal comes first.
async fn is_enrolled(folder: &Path) -> Result<bool, BoxError> {
    if folder.exists() {
        return Ok(true);
    }
    tracing::info!(folder = %folder.display(), "waiting until the machine is enrolled");
    // Nothing more can be started before: units that depend on this one must not wait for it.
    let notifier = Notifier::from_environment();
    notifier.ready();
    notifier.status("waiting until the machine is enrolled");
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    while !folder.exists() {
        notifier.alive();
        tokio::select! {
            () = sleep(ENROLLMENT_INTERVAL) => {}
            _ = terminate.recv() => return Ok(false),
            _ = interrupt.recv() => return Ok(false),
        }
    }
    Ok(true)
}

/// What to run, by the settings and the record of this machine. The changed files are staged, and moved into place when the
/// supervisor has checked them.
fn plan(settings: &AgentSettings) -> Result<EnvoyPlan, BoxError> {
    let AgentSettings { folder, sidecar, .. } = settings;
    let patch = patch_folder(folder, sidecar)?;
    let staged = stage(folder, &patch)?;
    let Some(process) = patch.process else {
        return Err(format!("the sidecar of `{}` has no process to run", folder.display()).into());
    };
    let validation = staged.validation().map(|command| command.arguments).unwrap_or_default();
    let staged = Mutex::new(Some(staged));
    let install = move || match staged.lock().take() {
        Some(staged) => Ok(staged.commit()?),
        None => Ok(()),
    };
    let envoy = &sidecar.envoy;
    let environment = patch.environment.into_iter();
    Ok(EnvoyPlan {
        program: process.program,
        bootstrap: folder.join(CONFIGURATION),
        arguments: process.supervised,
        validation,
        staged: StagedFiles(Arc::new(install)),
        environment: environment.map(|(name, value)| (name.into(), value)).collect(),
        admin: admin_address(settings)?,
        minimum_version: process.minimum_version,
        parent_shutdown_time: envoy.parent_shutdown_time,
        drain_minimum: envoy.drain_minimum,
        drain_maximum: envoy.drain_maximum,
    })
}

/// Where Envoy serves its admin interface.
pub(crate) fn admin_address(settings: &AgentSettings) -> Result<LocalAddress, PatchFolderError> {
    let workload = read_workload(&settings.folder)?;
    Ok(match workload {
        Some(workload) if workload.admin == Admin::Tcp => {
            let port = settings.sidecar.envoy.ports.admin;
            LocalAddress::Tcp((workload.local_address(), port).into())
        }
        _ => LocalAddress::Socket(admin_socket(&settings.folder)),
    })
}

/// Asks the control plane to direct the callers elsewhere.
async fn leave(settings: &AgentSettings) -> Result<LeaveOutcome, AgentError> {
    let control_plane =
        ProxyControlPlane::open(&settings.folder, &settings.control_plane, LEAVE_LIMIT)?;
    // The supervisor repeats the request itself, and must not wait for a control plane that is down.
    let control_plane = control_plane.without_retries();
    let left = control_plane.leave(false).await?;
    let mut laggards: Vec<_> = left.laggards.iter().map(ToString::to_string).collect();
    if left.more_laggards > 0 {
        laggards.push(format!("{} more", left.more_laggards));
    }
    Ok(LeaveOutcome { is_acked: left.acked, laggards })
}
