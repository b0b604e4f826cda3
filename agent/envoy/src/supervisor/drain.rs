//! The drain before a stop: callers go elsewhere, and Envoy finishes its connections.
//!
//! ```text
//! leave request (repeated) ─► drain inbound listeners ─► wait for connections ─► SIGTERM
//!                                                                                   │
//!                            by a stop: the supervisor ends ◄───────────────────────┤
//!                            by a hold: it waits for the command to start Envoy ◄───┘
//! ```

use std::time::Duration;

use tokio::sync::{Notify, mpsc};
use tokio::time::{Instant, sleep, timeout};

use super::Supervisor;
use crate::envoy_admin::{EnvoyAdmin, InboundWork};
use crate::plan::{EnvoyPlan, LeaveCall};
use crate::progress::{ReloadProgress, Reporter};
use crate::server::Command;
use crate::status::EnvoyState;

/// The time limit of a leave request. The control plane answers after 15 s at the latest; the caller may have tried other
/// addresses before.
const LEAVE_LIMIT: Duration = Duration::from_secs(22);

/// The pause between leave requests: a restarted control plane learns of the drain again.
const LEAVE_PAUSE: Duration = Duration::from_secs(3);

/// The pause between two counts of connections.
const COUNT_PAUSE: Duration = Duration::from_millis(500);

/// What follows a drain.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum AfterDrain {
    /// The end of the supervisor.
    Stop,
    /// A wait for the command to start Envoy again; after the wait, that start.
    Resume,
}

impl Supervisor {
    /// Drains and ends all Envoys, and waits for the command to start one. A signal stops the supervisor: after the drain, if
    /// that still runs.
    pub(super) async fn hold(&mut self) -> AfterDrain {
        let after = self.drain("a hold command", AfterDrain::Resume).await;
        if after == AfterDrain::Stop {
            return after;
        }
        self.publish_as(EnvoyState::Drained);
        // A start that never had an Envoy is done: units that wait for it go on.
        if self.announce_at.take().is_some() {
            self.notifier.ready();
        }
        loop {
            tokio::select! {
                name = self.signals.stop() => {
                    tracing::info!(signal = name, "the supervisor ends");
                    self.notifier.stopping();
                    return AfterDrain::Stop;
                }
                command = self.commands.recv() => match command {
                    Some(Command::Resume) => {
                        tracing::info!("starting Envoy after the hold");
                        return AfterDrain::Resume;
                    }
                    Some(Command::Drain) | None => return AfterDrain::Stop,
                    Some(Command::Reload(sender)) => {
                        let reason = "Envoy is drained, until the proxy is uncordoned".to_owned();
                        Reporter(Some(sender)).report(ReloadProgress::Failed { reason });
                    }
                    Some(Command::Hold) => {}
                },
            }
        }
    }

    /// Drains and ends all Envoys. If the supervisor then stops, a signal ends them at once; otherwise the first one makes it
    /// stop after the drain. Returns what follows.
    pub(super) async fn drain(
        &mut self,
        reason: &'static str,
        mut after: AfterDrain,
    ) -> AfterDrain {
        if after == AfterDrain::Stop {
            self.notifier.stopping();
        }
        self.restart_at = None;
        self.check = None;
        self.waiting = None;
        if self.next.is_some() {
            self.abort_handover("the supervisor is stopping").await;
        }
        self.fail_reload("the supervisor is stopping");
        self.publish_as(EnvoyState::Draining);
        tracing::info!(reason, "draining Envoy");
        if let Some(serving) = &mut self.serving {
            let drained = drained(&self.plan, &self.options.leave);
            tokio::pin!(drained);
            loop {
                tokio::select! {
                    () = &mut drained => break,
                    exit = serving.process.ended() => {
                        tracing::warn!(exit, "Envoy ended during the drain");
                        break;
                    }
                    name = self.signals.stop() => {
                        if after == AfterDrain::Stop {
                            tracing::warn!(signal = name, "second signal: ending Envoy without the rest of the drain");
                            break;
                        }
                        tracing::info!(signal = name, "the supervisor ends after the drain");
                        self.notifier.stopping();
                        after = AfterDrain::Stop;
                    }
                    () = stop_command(&mut self.commands) => after = AfterDrain::Stop,
                }
            }
        }
        let retiring = self.retiring.drain(..).map(|retiring| retiring.instance);
        for mut instance in self.serving.take().into_iter().chain(retiring) {
            instance.process.terminate().await;
        }
        tracing::info!("Envoy has ended");
        after
    }
}

/// Completes when Envoy may be ended.
async fn drained(plan: &EnvoyPlan, leave: &LeaveCall) {
    let is_answered = Notify::new();
    tokio::select! {
        () = leave_repeatedly(leave, &is_answered) => {}
        () = async {
            is_answered.notified().await;
            drain_connections(plan).await;
        } => {}
    }
}

/// Repeats the leave request for ever, and reports the end of the first one.
async fn leave_repeatedly(leave: &LeaveCall, is_answered: &Notify) {
    loop {
        match timeout(LEAVE_LIMIT, leave()).await {
            Ok(Ok(outcome)) if outcome.is_acked => tracing::info!("all callers have left"),
            Ok(Ok(outcome)) => tracing::warn!(
                laggards = outcome.laggards.join(", "),
                "callers have not ACKed the leave in time; draining all the same"
            ),
            Ok(Err(error)) => tracing::warn!(
                reason = super::chain(&*error),
                "leave request failed; draining for the minimum at least"
            ),
            Err(_) => tracing::warn!(
                reason = "no answer in time",
                "leave request failed; draining for the minimum at least"
            ),
        }
        is_answered.notify_one();
        sleep(LEAVE_PAUSE).await;
    }
}

/// Drains the inbound listeners, and waits for the end of their TCP connections and HTTP requests.
async fn drain_connections(plan: &EnvoyPlan) {
    let admin = EnvoyAdmin::new(&plan.admin);
    let began = Instant::now();
    tracing::info!("draining the inbound listeners");
    let listeners = admin.inbound_listeners().await;
    let drained = admin.drain_inbound().await;
    let (listeners, ()) = match listeners.and_then(|listeners| Ok((listeners, drained?))) {
        Ok(drained) => drained,
        Err(error) => {
            // Connections cannot be counted then.
            let reason = super::chain(&error);
            tracing::warn!(reason, "cannot drain Envoy's listeners; waiting for `drain_maximum`");
            return sleep(plan.drain_maximum).await;
        }
    };
    let rest = plan.drain_maximum.saturating_sub(began.elapsed());
    let minimum = plan.drain_minimum.saturating_sub(began.elapsed());
    let wait = async {
        sleep(minimum).await;
        while !matches!(
            admin.work_of(&listeners).await,
            Ok(InboundWork { tcp_connections: 0, http_requests: 0 })
        ) {
            sleep(COUNT_PAUSE).await;
        }
    };
    if timeout(rest, wait).await.is_err() {
        let work = admin.work_of(&listeners).await.ok();
        tracing::warn!(
            tcp_connections = work.map(|work| work.tcp_connections),
            http_requests = work.map(|work| work.http_requests),
            "`drain_maximum` has passed; closing the remaining connections"
        );
    }
}

/// Answers commands during the drain, until one is to stop the supervisor.
async fn stop_command(commands: &mut mpsc::Receiver<Command>) {
    loop {
        match commands.recv().await {
            Some(Command::Reload(sender)) => {
                let reason = "Envoy is drained".to_owned();
                Reporter(Some(sender)).report(ReloadProgress::Failed { reason });
            }
            Some(Command::Drain) => return,
            // The drain runs, and who wants Envoy back repeats that.
            Some(Command::Hold | Command::Resume) => {}
            None => std::future::pending().await,
        }
    }
}
