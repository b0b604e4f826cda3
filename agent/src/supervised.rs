//! The Envoy of this machine under its supervisor: what the settings and the record of the workload make of it, and the leave
//! request of its drain.

use std::net::{IpAddr, Ipv4Addr};
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::Duration;

use ironmesh_agent_envoy::local_http::LocalAddress;
use ironmesh_agent_envoy::{
    BoxError, EnvoyPlan, LeaveOutcome, Notifier, PlanFiles, SupervisorOptions, supervise,
};
use ironmesh_catalog::{CertificateSource, NodeMetadata};
use ironmesh_sidecar::envoy::{CONFIGURATION, admin_socket};
use ironmesh_sidecar::{Admin, Workload};
use ironmesh_sidecar_folder::{
    PatchFolderError, ReplacedFiles, StagedPatch, patch_folder, read_workload, stage,
};
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

/// The time limit of a leave request. The control plane answers after 15 s at the latest; the first address may be dead.
const LEAVE_LIMIT: Duration = Duration::from_secs(21);

/// Runs the Envoy of this machine by the settings in `config`, which are read again at each start and reload. Waits until
/// the machine is enrolled first: agent and supervisor may start at the same time.
pub async fn run_envoy(config: PathBuf) -> Result<(), BoxError> {
    let settings = AgentSettings::read(&config)?;
    if !is_enrolled(&settings.folder).await? {
        return Ok(());
    }
    let folder = settings.folder.clone();
    let (of_leave, config_of_leave) = (settings.clone(), config.clone());
    let options = SupervisorOptions {
        folder: folder.clone(),
        plan: Box::new(move || {
            let new = AgentSettings::read(&config)?;
            if new.folder != folder {
                return Err(
                    AgentError::ChangedFolder { own: folder.clone(), new: new.folder }.into()
                );
            }
            plan(&new)
        }),
        leave: Box::new(move || {
            // Addresses that were added since the start count, and a mistake in the file does not stop the drain.
            let new = AgentSettings::read(&config_of_leave);
            let settings = AgentSettings {
                folder: of_leave.folder.clone(),
                ..new.unwrap_or_else(|_| of_leave.clone())
            };
            Box::pin(async move { Ok(leave(&settings).await?) })
        }),
        clock: Timestamp::now,
    };
    Ok(supervise(options).await?)
}

/// Waits until the machine is enrolled; false if a signal comes first.
async fn is_enrolled(folder: &Path) -> Result<bool, BoxError> {
    if folder.try_exists()? {
        return Ok(true);
    }
    tracing::info!(folder = %folder.display(), "waiting until the machine is enrolled");
    // Nothing more can be started before: units that depend on this one must not wait for it.
    let notifier = Notifier::from_environment();
    notifier.ready();
    notifier.status("waiting until the machine is enrolled");
    let mut terminate = signal(SignalKind::terminate())?;
    let mut interrupt = signal(SignalKind::interrupt())?;
    // A reload before the start changes nothing, and must not end the process.
    let mut hangup = signal(SignalKind::hangup())?;
    while !folder.exists() {
        notifier.alive();
        tokio::select! {
            () = sleep(ENROLLMENT_INTERVAL) => {}
            _ = terminate.recv() => return Ok(false),
            _ = interrupt.recv() => return Ok(false),
            _ = hangup.recv() => {}
        }
    }
    Ok(true)
}

/// What to run, by the settings and the record of this machine. The changed files are staged, and moved into place when the
/// supervisor has checked them.
fn plan(settings: &AgentSettings) -> Result<EnvoyPlan, BoxError> {
    check_mesh(settings)?;
    let AgentSettings { folder, sidecar, .. } = settings;
    let patch = patch_folder(folder, sidecar, |workload| with_settings(workload, settings))?;
    let staged = stage(folder, &patch)?;
    let Some(process) = patch.process else {
        return Err(format!("the sidecar of `{}` has no process to run", folder.display()).into());
    };
    let validation = staged.validation().map(|command| command.arguments).unwrap_or_default();
    let envoy = &sidecar.envoy;
    let environment = patch.environment.into_iter();
    Ok(EnvoyPlan {
        program: process.program,
        bootstrap: folder.join(CONFIGURATION),
        arguments: process.supervised,
        validation,
        files: Arc::new(StagedPlan(Mutex::new(Stage::Staged(staged)))),
        environment: environment.map(|(name, value)| (name.into(), value)).collect(),
        admin: admin_address(settings)?,
        minimum_version: process.minimum_version,
        parent_shutdown_time: envoy.parent_shutdown_time,
        drain_minimum: envoy.drain_minimum,
        drain_maximum: envoy.drain_maximum,
    })
}

/// The files of a plan: beside those in use, or in their place.
#[derive(Debug)]
struct StagedPlan(Mutex<Stage>);

#[derive(Debug)]
enum Stage {
    Staged(StagedPatch),
    Installed(ReplacedFiles),
    /// Nothing is left to do.
    Done,
}

impl PlanFiles for StagedPlan {
    fn install(&self) -> Result<(), BoxError> {
        let mut stage = self.0.lock();
        match std::mem::replace(&mut *stage, Stage::Done) {
            Stage::Staged(staged) => *stage = Stage::Installed(staged.commit()?),
            other => *stage = other,
        }
        Ok(())
    }

    fn revert(&self) -> Result<(), BoxError> {
        let mut stage = self.0.lock();
        match std::mem::replace(&mut *stage, Stage::Done) {
            Stage::Installed(replaced) => Ok(replaced.restore()?),
            other => {
                *stage = other;
                Ok(())
            }
        }
    }
}

/// The record with what the settings of the machine say of its own listeners. What they do not say stays as it was at the
/// enrollment.
fn with_settings(workload: Workload, settings: &AgentSettings) -> Workload {
    let AgentSettings { listeners, admin_tcp, .. } = settings;
    let known = workload.metadata;
    let (upstreams, hosts) = match listeners.node_metadata() {
        // (The settings are rejected when they are read if two upstreams have one port.)
        Ok(new) if !listeners.upstreams.is_empty() => (new.upstreams, new.hosts),
        _ => (known.upstreams, known.hosts),
    };
    let metadata = NodeMetadata {
        bind: listeners.bind.or(known.bind),
        app_address: listeners.app_address.or(known.app_address),
        access_log_dir: listeners.access_log_dir.clone().or(known.access_log_dir),
        upstreams,
        hosts,
        // Its agent runs beside a supervised Envoy. One that is run by hand may have none.
        certificates: CertificateSource::Agent,
        bootstrap_version: known.bootstrap_version,
        control_plane: known.control_plane,
        unknown: known.unknown,
    };
    let admin = match admin_tcp {
        Some(true) => Admin::Tcp,
        Some(false) => Admin::Socket,
        None => workload.admin,
    };
    Workload { metadata, admin, ..workload }
}

/// The address of the applications: to which Envoy forwards calls.
pub(crate) fn application_address(settings: &AgentSettings) -> Result<IpAddr, PatchFolderError> {
    let workload = read_workload(&settings.folder)?;
    let enrolled = workload.and_then(|workload| workload.metadata.app_address);
    let address = settings.listeners.app_address.or(enrolled);
    Ok(address.unwrap_or(IpAddr::V4(Ipv4Addr::LOCALHOST)))
}

/// Where Envoy serves its admin interface.
pub(crate) fn admin_address(settings: &AgentSettings) -> Result<LocalAddress, PatchFolderError> {
    let workload = read_workload(&settings.folder)?;
    let workload = workload.map(|workload| with_settings(workload, settings));
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
