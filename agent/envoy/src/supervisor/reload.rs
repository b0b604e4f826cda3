//! Hot restarts: the next epoch of Envoy takes over the listeners, and the previous one finishes its connections.
//!
//! ```text
//! check plan ─► wait until earlier epochs ended ─► start epoch N+1 ─► live: epoch N retires
//!                                                        └─ ends or not live in time: killed, epoch N serves
//! ```

use super::Supervisor;
use super::instance::{Instance, NextInstance};
use crate::check::{CheckedPlan, check};
use crate::envoy_admin::{EnvoyAdmin, ServerInfo};
use crate::error::CheckError;
use crate::plan::EnvoyPlan;
use crate::progress::{ReloadProgress, Reporter};
use crate::shared_memory;

impl Supervisor {
    /// Begins a reload, unless one is in progress.
    pub(super) fn begin_reload(&mut self, reporter: Reporter) {
        if self.reload.is_some() {
            let reason = "a reload is in progress: repeat the command when it has ended".to_owned();
            reporter.report(ReloadProgress::Failed { reason });
            return;
        }
        reporter.report(ReloadProgress::Checking);
        self.reload = Some(reporter);
        if self.check.is_some() {
            // That of a restart, which has just begun.
            return;
        }
        let running = self.serving.as_ref().and_then(|serving| serving.info.clone());
        match (self.options.plan)() {
            Ok(plan) => {
                let admin = EnvoyAdmin::new(&self.plan.admin);
                self.check = Some(tokio::spawn(check_reload(plan, admin, running)));
            }
            Err(error) => self.fail_reload(&super::chain(&CheckError::Plan(error))),
        }
    }

    /// Ends a reload without success. Without a reload it does nothing.
    pub(super) fn fail_reload(&mut self, reason: &str) {
        if let Some(reporter) = self.reload.take() {
            self.record_failure("reload failed", reason);
            reporter.report(ReloadProgress::Failed { reason: reason.to_owned() });
        }
    }

    /// Goes on with a reload whose plan passed the check.
    pub(super) async fn reload_checked(&mut self, checked: CheckedPlan) {
        let Some(reporter) = &self.reload else { return };
        reporter.report(ReloadProgress::Checked { version: checked.release.to_string() });
        if let Some(retiring) = self.retiring.last() {
            let (epoch, ends_at) = (retiring.instance.epoch, retiring.ends_at);
            reporter.report(ReloadProgress::WaitingForPrevious { epoch, ends_at });
        }
        self.waiting = Some(checked);
        self.continue_reload().await;
    }

    /// Starts the next epoch as soon as no Envoy retires.
    pub(super) async fn continue_reload(&mut self) {
        if !self.retiring.is_empty() || self.serving.is_none() {
            return;
        }
        if let Some(checked) = self.waiting.take() {
            self.hand_over(checked).await;
        }
    }

    async fn hand_over(&mut self, checked: CheckedPlan) {
        let Some(serving) = &self.serving else { return };
        let (base_id, epoch) = (serving.base_id, serving.epoch + 1);
        // Counted now: the new Envoy closes the admin interface of the old one.
        let tcp_connections = EnvoyAdmin::new(&self.plan.admin).tcp_connections().await.ok();
        match Instance::spawn(&checked, base_id, epoch, (self.options.clock)()) {
            Err(error) => self.fail_reload(&super::chain(&error)),
            Ok(instance) => {
                if let Some(reporter) = &self.reload {
                    let pid = instance.process.pid();
                    reporter.report(ReloadProgress::Started { epoch, pid });
                }
                let admin = EnvoyAdmin::new(&checked.plan.admin);
                self.next = Some(NextInstance::new(instance, checked, admin, tcp_connections));
            }
        }
    }

    /// The next epoch is live: the previous one retires.
    pub(super) fn complete_handover(&mut self, info: ServerInfo) {
        let Some(NextInstance { mut instance, checked, tcp_connections, .. }) = self.next.take()
        else {
            return;
        };
        let version = info.release();
        instance.info = Some(info);
        let epoch = instance.epoch;
        let previous = self.serving.replace(instance);
        let previous_epoch = previous.as_ref().map(|previous| previous.epoch);
        // The time is that of the previous epoch's successor, whose arguments set it.
        self.plan = checked.plan.clone();
        self.checked = Some(checked);
        if let Some(previous) = previous {
            self.retire(previous);
        }
        let previous_ends_at = self.retiring.last().map(|retiring| retiring.ends_at);
        if let Some(reporter) = self.reload.take() {
            reporter.report(ReloadProgress::Done {
                epoch,
                version,
                previous_epoch,
                previous_ends_at,
                tcp_connections,
            });
        }
    }

    /// Kills the next epoch. The previous one goes on serving.
    pub(super) async fn abort_handover(&mut self, reason: &str) {
        let Some(mut next) = self.next.take() else { return };
        next.instance.process.kill().await;
        // The Envoy that serves must find its own bootstrap when it is started again.
        if let Err(error) = next.checked.plan.files.revert() {
            tracing::error!(
                reason = super::chain(&*error),
                "cannot restore the previous bootstrap"
            );
        }
        let running = self.serving.as_ref().and_then(|serving| serving.info.as_ref());
        let version = running
            .map(|info| info.hot_restart_version.clone())
            .or_else(|| self.checked.as_ref().map(|checked| checked.hot_restart_version.clone()));
        let base_id = next.instance.base_id;
        if let Err(error) =
            shared_memory::clear_initializing(base_id, version.as_deref().unwrap_or_default())
        {
            tracing::warn!(
                reason = %error,
                "cannot clear the state of the failed hot restart: the next one may fail, until Envoy is restarted"
            );
        }
        self.fail_reload(reason);
    }
}

/// Checks the plan of a reload: also that the running Envoy can hand over to it.
async fn check_reload(
    plan: EnvoyPlan,
    admin: EnvoyAdmin,
    running: Option<ServerInfo>,
) -> Result<CheckedPlan, CheckError> {
    let checked = check(plan).await?;
    if let Some(running) = running
        && running.hot_restart_version != checked.hot_restart_version
    {
        return Err(CheckError::HotRestartVersion {
            running: running.release(),
            running_version: running.hot_restart_version,
            release: checked.release,
            version: checked.hot_restart_version,
        });
    }
    // After a failed hot restart the running Envoy has no admin interface, and its connection is unknown.
    match admin.is_connected().await {
        Ok(Some(false)) => Err(CheckError::NoControlPlane),
        _ => Ok(checked),
    }
}
