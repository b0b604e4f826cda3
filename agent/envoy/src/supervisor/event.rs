//! The events of the supervisor, and the reaction to each.

use std::future::pending;
use std::time::Duration;

use futures_util::future::select_all;
use tokio::time::{Instant, sleep, sleep_until};

use super::Supervisor;
use crate::check::{CheckedPlan, check};
use crate::envoy_admin::{EnvoyAdmin, ServerInfo};
use crate::error::CheckError;
use crate::process::EnvoyProcess;
use crate::progress::{ReloadProgress, Reporter};
use crate::server::Command;
use crate::signals::Received;

/// The pause between two looks whether a new Envoy is live.
const PROBE_PAUSE: Duration = Duration::from_millis(50);

/// The pause after `PROBED_OFTEN`: Envoy has no control plane.
const SLOW_PROBE_PAUSE: Duration = Duration::from_secs(1);
const PROBED_OFTEN: Duration = Duration::from_secs(5);

/// What happens next.
pub(super) enum Event {
    ServingEnded(String),
    ServingLive(ServerInfo),
    NextEnded(String),
    NextLive(ServerInfo),
    RetiringEnded(usize),
    Checked(Result<CheckedPlan, CheckError>),
    Signal(Received),
    Command(Command),
    /// A deadline has passed.
    Due,
}

/// Whether the supervisor goes on.
pub(super) enum Outcome {
    Continue,
    Stop(&'static str),
    Hold,
}

impl Supervisor {
    /// Waits for the next event.
    pub(super) async fn next_event(&mut self) -> Event {
        let due = self.next_deadline();
        let serving_admin = EnvoyAdmin::new(&self.plan.admin);
        let is_handover = self.next.is_some();
        let mut serving = self.serving.as_mut();
        let mut next = self.next.as_mut();
        // During a hot restart the admin interface is that of the new Envoy.
        let unready = serving.as_deref().filter(|one| one.info.is_none() && !is_handover);
        let unready = unready.map(|one| (one.base_id, one.epoch, one.started));
        let handover = next
            .as_deref()
            .map(|next| (next.admin.clone(), next.instance.base_id, next.instance.epoch));
        tokio::select! {
            exit = ended(serving.as_mut().map(|one| &mut one.process)) => Event::ServingEnded(exit),
            exit = ended(next.as_mut().map(|one| &mut one.instance.process)) => Event::NextEnded(exit),
            index = async {
                let ends = self.retiring.iter_mut().map(|one| Box::pin(one.instance.process.ended()));
                let ends: Vec<_> = ends.collect();
                if ends.is_empty() { pending().await } else { select_all(ends).await.1 }
            } => Event::RetiringEnded(index),
            checked = async {
                match &mut self.check {
                    Some(check) => check.await.unwrap_or_else(|panicked| Err(CheckError::Plan(panicked.into()))),
                    None => pending().await,
                }
            } => Event::Checked(checked),
            info = async {
                match unready {
                    Some((base_id, epoch, started)) => until_live(&serving_admin, base_id, epoch, started).await,
                    None => pending().await,
                }
            } => Event::ServingLive(info),
            info = async {
                match handover {
                    Some((admin, base_id, epoch)) => until_live(&admin, base_id, epoch, Instant::now()).await,
                    None => pending().await,
                }
            } => Event::NextLive(info),
            () = async {
                match due {
                    Some(due) => sleep_until(due).await,
                    None => pending().await,
                }
            } => Event::Due,
            signal = self.signals.next() => Event::Signal(signal),
            Some(command) = self.commands.recv() => Event::Command(command),
        }
    }

    fn next_deadline(&self) -> Option<Instant> {
        let retiring = self.retiring.iter().map(|one| one.deadline);
        let next = self.next.iter().map(|one| one.deadline);
        retiring.chain(next).chain(self.restart_at).chain(self.announce_at).min()
    }

    /// Reacts to an event.
    pub(super) async fn handle(&mut self, event: Event) -> Outcome {
        match event {
            Event::ServingEnded(exit) => self.serving_ended(&exit).await,
            Event::ServingLive(info) => {
                if let Some(serving) = &mut self.serving {
                    tracing::info!(
                        epoch = serving.epoch,
                        version = info.release(),
                        "Envoy is live"
                    );
                    serving.info = Some(info);
                }
                self.announce();
            }
            Event::NextEnded(exit) => {
                let reason =
                    format!("the new Envoy ended before it was live ({exit}); see its log");
                self.abort_handover(&reason).await;
            }
            Event::NextLive(info) => self.complete_handover(info),
            Event::RetiringEnded(index) => {
                let ended = self.retiring.remove(index);
                tracing::info!(epoch = ended.instance.epoch, "replaced Envoy has ended");
                self.continue_reload().await;
            }
            Event::Checked(checked) => {
                self.check = None;
                self.checked(checked).await;
            }
            Event::Due => self.due().await,
            Event::Signal(Received::Stop(name)) => return Outcome::Stop(name),
            Event::Signal(Received::Reload) => self.begin_reload(Reporter(None)),
            Event::Command(Command::Reload(sender)) => self.begin_reload(Reporter(Some(sender))),
            Event::Command(Command::Drain) => return Outcome::Stop("a drain command"),
            Event::Command(Command::Hold) => return Outcome::Hold,
            // It runs already.
            Event::Command(Command::Resume) => {}
        }
        Outcome::Continue
    }

    /// Reports the start to systemd, once.
    fn announce(&mut self) {
        if self.announce_at.take().is_some() {
            self.notifier.ready();
        }
    }

    async fn serving_ended(&mut self, exit: &str) {
        let Some(ended) = self.serving.take() else { return };
        // The plan of a reload is checked again for the restart, which serves the reload, too.
        self.waiting = None;
        self.record_failure("Envoy ended by itself", &format!("{exit}; see its log"));
        self.status.send_modify(|status| status.restarts += 1);
        if self.next.is_some() {
            // An epoch without its parent cannot complete a hot restart.
            self.abort_handover(&format!("the running Envoy ended during the reload ({exit})"))
                .await;
        }
        let pause = self.backoff.next(ended.started.elapsed());
        if !pause.is_zero() {
            tracing::warn!(?pause, "Envoy ends repeatedly; waiting before the next start");
        }
        self.restart_at = Some(Instant::now() + pause);
    }

    async fn due(&mut self) {
        let now = Instant::now();
        if self.announce_at.is_some_and(|at| at <= now) {
            if self.serving.is_some() {
                tracing::warn!(
                    "Envoy waits for its configuration: the control plane may be unreachable"
                );
                self.announce();
            } else {
                // Not started: systemd goes on waiting until its own limit.
                self.announce_at = Some(now + super::ANNOUNCE_LIMIT);
            }
        }
        for retiring in self.retiring.iter_mut().filter(|one| one.deadline <= now) {
            retiring.end();
        }
        if self.next.as_ref().is_some_and(|next| next.deadline <= now) {
            self.abort_handover(&super::NextInstance::timeout_reason()).await;
        }
        if self.restart_at.is_some_and(|at| at <= now) {
            self.restart_at = None;
            // The check of a reload in progress serves the restart, too.
            if self.check.is_none() {
                self.begin_restart();
            }
        }
    }

    fn begin_restart(&mut self) {
        match (self.options.plan)() {
            Ok(plan) => self.check = Some(tokio::spawn(check(plan))),
            Err(error) => self.restart(Err(CheckError::Plan(error))),
        }
    }

    /// Starts an Envoy by a new plan, or by the last good one.
    pub(super) fn restart(&mut self, checked: Result<CheckedPlan, CheckError>) {
        let checked = match checked {
            Ok(checked) => Some(checked),
            Err(error) => {
                self.record_error(
                    "the new plan is rejected; starting Envoy by the last good one",
                    &error,
                );
                self.checked.clone()
            }
        };
        let started = checked.map(|checked| self.start_fresh(checked));
        if !matches!(started, Some(Ok(()))) {
            if let Some(Err(error)) = started {
                self.record_error("Envoy cannot be started", &error);
            }
            self.restart_at = Some(Instant::now() + self.backoff.next(Duration::ZERO));
        }
    }

    /// Goes on with the restart or the reload whose plan was checked.
    async fn checked(&mut self, checked: Result<CheckedPlan, CheckError>) {
        if self.serving.is_some() {
            match checked {
                Ok(checked) => self.reload_checked(checked).await,
                Err(error) => self.fail_reload(&super::chain(&error)),
            }
            return;
        }
        if let Err(error) = &checked {
            self.fail_reload(&super::chain(error));
        }
        let version = checked.as_ref().ok().map(|checked| checked.release.to_string());
        self.restart(checked);
        if let (Some(version), Some(serving), Some(reload)) =
            (version, &self.serving, self.reload.take())
        {
            reload.report(ReloadProgress::Done {
                epoch: serving.epoch,
                version,
                previous_epoch: None,
                previous_ends_at: None,
                tcp_connections: None,
            });
        }
    }
}

/// Waits for the end of a process; without one, for ever.
async fn ended(process: Option<&mut EnvoyProcess>) -> String {
    match process {
        Some(process) => process.ended().await,
        None => pending().await,
    }
}

/// Waits until the Envoy of an epoch is live.
async fn until_live(admin: &EnvoyAdmin, base_id: u32, epoch: u32, started: Instant) -> ServerInfo {
    loop {
        match admin.server_info().await {
            Ok(info) if info.is_of(base_id, epoch) && info.is_live() => return info,
            _ => {}
        }
        let is_new = started.elapsed() < PROBED_OFTEN;
        sleep(if is_new { PROBE_PAUSE } else { SLOW_PROBE_PAUSE }).await;
    }
}
