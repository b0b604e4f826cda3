//! The supervisor: one task that owns all Envoys of a folder, and reacts to one event after the other.
//!
//! At most one Envoy serves. During a hot restart there is also the next one, and after it those that retire.

mod drain;
mod event;
mod instance;
mod reload;

use std::path::PathBuf;
use std::time::Duration;

use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::task::{JoinHandle, JoinSet};
use tokio::time::Instant;

use crate::backoff::Backoff;
use crate::base_id;
use crate::check::{CheckedPlan, check};
use crate::envoy_admin::ServerInfo;
use crate::error::{CheckError, SupervisorError};
use crate::lock::lock;
use crate::notify::Notifier;
use crate::plan::{EnvoyPlan, LeaveCall, PlanSource};
use crate::progress::Reporter;
use crate::server::{self, Command, Supervised};
use crate::signals::Signals;
use crate::status::{EnvoyEpoch, EnvoyState, PreviousEpoch, SupervisorStatus};
use drain::AfterDrain;
use event::Outcome;
use instance::{Instance, NextInstance, RetiringInstance};

/// How long the first Envoy may wait for its configuration before the start counts as done. Without a control plane
/// Envoy waits for 30 s, and starts with nothing; services that depend on this one must not wait as long.
const ANNOUNCE_LIMIT: Duration = Duration::from_secs(10);

/// The most commands that wait for the supervisor.
const MAX_COMMANDS: usize = 16;

/// The inputs of a supervisor.
pub struct SupervisorOptions {
    /// The folder of the proxy, for the lock and the socket.
    pub folder: PathBuf,
    /// Produces the plan for each start and reload.
    pub plan: PlanSource,
    /// Asks the control plane to direct callers elsewhere.
    pub leave: LeaveCall,
    /// The clock, for the times in the status.
    pub clock: fn() -> Timestamp,
}

impl std::fmt::Debug for SupervisorOptions {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("SupervisorOptions").field("folder", &self.folder).finish_non_exhaustive()
    }
}

/// Runs Envoy until a signal or a command stops it. Returns when all Envoys have ended.
pub async fn supervise(options: SupervisorOptions) -> Result<(), SupervisorError> {
    let signals = Signals::install().map_err(SupervisorError::Signals)?;
    let folder = options.folder.clone();
    let _lock = lock(&folder)?;
    let plan = (options.plan)().map_err(CheckError::Plan)?;
    let (command_sender, commands) = mpsc::channel(MAX_COMMANDS);
    let mut supervisor = Supervisor::new(options, plan, signals, commands);
    supervisor.start().await?;

    // The tasks end with this function.
    let mut tasks = JoinSet::new();
    let status = supervisor.status.subscribe();
    let listener = server::bind(&folder)?;
    tasks.spawn(server::serve(listener, Supervised { status, commands: command_sender }));
    if let Some(interval) = supervisor.notifier.watchdog_interval() {
        tasks.spawn(keep_alive(interval));
    }
    supervisor.run_until_stopped().await;
    drop(std::fs::remove_file(server::socket_path(&folder)));
    Ok(())
}

/// Sends signs of life to systemd.
async fn keep_alive(interval: Duration) -> std::io::Result<()> {
    let notifier = Notifier::from_environment();
    let mut ticks = tokio::time::interval(interval);
    loop {
        ticks.tick().await;
        notifier.alive();
    }
}

/// The state of the supervisor.
struct Supervisor {
    options: SupervisorOptions,
    signals: Signals,
    commands: mpsc::Receiver<Command>,
    notifier: Notifier,
    status: watch::Sender<SupervisorStatus>,
    /// The plan of the Envoy that serves.
    plan: EnvoyPlan,
    /// The last plan that passed the check. A restart falls back to it.
    checked: Option<CheckedPlan>,
    serving: Option<Instance>,
    next: Option<NextInstance>,
    retiring: Vec<RetiringInstance>,
    /// The running check of a plan, for a restart or a reload.
    check: Option<JoinHandle<Result<CheckedPlan, CheckError>>>,
    /// A checked plan whose start waits for the end of the retiring Envoys.
    waiting: Option<CheckedPlan>,
    /// The reload in progress.
    reload: Option<Reporter>,
    restart_at: Option<Instant>,
    /// When the start counts as done, although Envoy waits for its configuration. `None` afterwards.
    announce_at: Option<Instant>,
    backoff: Backoff,
}

impl Supervisor {
    fn new(
        options: SupervisorOptions,
        plan: EnvoyPlan,
        signals: Signals,
        commands: mpsc::Receiver<Command>,
    ) -> Self {
        let status = SupervisorStatus {
            pid: std::process::id(),
            state: EnvoyState::Starting,
            envoy: None,
            previous: Vec::new(),
            restarts: 0,
            last_error: None,
            last_error_at: None,
        };
        Self {
            options,
            signals,
            commands,
            notifier: Notifier::from_environment(),
            status: watch::Sender::new(status),
            plan,
            checked: None,
            serving: None,
            next: None,
            retiring: Vec::new(),
            check: None,
            waiting: None,
            reload: None,
            restart_at: None,
            announce_at: Some(Instant::now() + ANNOUNCE_LIMIT),
            backoff: Backoff::default(),
        }
    }

    /// Starts the first Envoy.
    async fn start(&mut self) -> Result<(), SupervisorError> {
        let checked = check(self.plan.clone()).await?;
        self.start_fresh(checked)
    }

    /// Starts an Envoy without a parent, at epoch 0.
    fn start_fresh(&mut self, checked: CheckedPlan) -> Result<(), SupervisorError> {
        let base_id = base_id::free(&self.options.folder)?;
        let now = (self.options.clock)();
        let instance = Instance::spawn(&checked, base_id, 0, now)?;
        tracing::info!(pid = instance.process.pid(), version = %checked.release, "started Envoy");
        self.plan = checked.plan.clone();
        self.checked = Some(checked);
        self.serving = Some(instance);
        self.restart_at = None;
        self.publish();
        Ok(())
    }

    /// Lets an Envoy that was replaced finish its connections, and bounds its life.
    fn retire(&mut self, instance: Instance) {
        let life = self.plan.parent_shutdown_time;
        self.retiring.push(RetiringInstance::new(instance, life, (self.options.clock)()));
    }

    /// Handles events until one stops the supervisor, and drains.
    async fn run_until_stopped(&mut self) {
        loop {
            let event = self.next_event().await;
            match self.handle(event).await {
                Outcome::Continue => self.publish(),
                Outcome::Stop(reason) => {
                    self.drain(reason, AfterDrain::Stop).await;
                    return;
                }
                Outcome::Hold => {
                    if self.hold().await == AfterDrain::Stop {
                        return;
                    }
                    self.restart_at = Some(Instant::now());
                    self.publish();
                }
            }
        }
    }

    /// Records a failure in the log and in the status.
    fn record_error(&self, event: &'static str, error: &dyn std::error::Error) {
        self.record_failure(event, &chain(error));
    }

    fn record_failure(&self, event: &'static str, reason: &str) {
        tracing::error!(reason, "{event}");
        let now = (self.options.clock)();
        self.status.send_modify(|status| {
            status.last_error = Some(format!("{event}: {reason}"));
            status.last_error_at = Some(now);
        });
    }

    /// Updates the status, and the line that systemd shows.
    fn publish(&self) {
        let state = match &self.serving {
            None => EnvoyState::Restarting,
            Some(_) if self.reload.is_some() => EnvoyState::Reloading,
            Some(serving) if serving.info.is_some() => EnvoyState::Live,
            Some(_) => EnvoyState::Starting,
        };
        self.publish_as(state);
    }

    fn publish_as(&self, state: EnvoyState) {
        let envoy = self.serving.as_ref().map(|serving| EnvoyEpoch {
            epoch: serving.epoch,
            pid: serving.process.pid(),
            version: serving.info.as_ref().map(ServerInfo::release),
            since: serving.since,
        });
        let previous = self.retiring.iter().map(|one| PreviousEpoch {
            epoch: one.instance.epoch,
            pid: one.instance.process.pid(),
            ends_at: one.ends_at,
        });
        let previous = previous.collect();
        let is_changed = self.status.send_if_modified(|status| {
            let before = status.clone();
            (status.state, status.envoy, status.previous) = (state, envoy, previous);
            *status != before
        });
        if is_changed {
            self.notifier.status(&status_line(&self.status.borrow()));
        }
    }
}

/// The line that `systemctl status` shows.
fn status_line(status: &SupervisorStatus) -> String {
    let epoch = status.envoy.as_ref().map(|envoy| {
        let version = envoy.version.as_deref().unwrap_or("of unknown version");
        format!("Envoy {version}, epoch {}, process {}", envoy.epoch, envoy.pid)
    });
    let epoch = epoch.as_deref().unwrap_or("Envoy is not running");
    match (status.state, &status.last_error) {
        (EnvoyState::Live, _) => epoch.to_owned(),
        (EnvoyState::Starting, _) => format!("{epoch}: waits for its configuration"),
        (EnvoyState::Reloading, _) => format!("{epoch}: reloading"),
        (EnvoyState::Draining, _) => format!("{epoch}: draining"),
        (EnvoyState::Drained, _) => "drained, until the proxy is uncordoned".to_owned(),
        (EnvoyState::Restarting, Some(error)) => error.clone(),
        (EnvoyState::Restarting, None) => format!("{epoch}: restarting"),
    }
}

/// An error with its causes.
fn chain(error: &dyn std::error::Error) -> String {
    let causes = std::iter::successors(error.source(), |cause| cause.source());
    causes.fold(error.to_string(), |text, cause| format!("{text}: {cause}"))
}
