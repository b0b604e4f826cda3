//! An Envoy of the folder, in each of its roles.

use std::time::Duration;

use jiff::Timestamp;
use tokio::time::Instant;

use crate::check::CheckedPlan;
use crate::envoy_admin::{EnvoyAdmin, ServerInfo};
use crate::error::SupervisorError;
use crate::process::EnvoyProcess;

/// How long a new Envoy may take to be live in a hot restart. Envoy gives up a first configuration after 15 s
/// (`initial_fetch_timeout`), and is then live without it: it would end an Envoy that serves.
const HANDOVER_LIMIT: Duration = Duration::from_secs(12);

/// How much longer than `parent_shutdown_time` a replaced Envoy may live: it ends by itself then, unless the new one
/// has crashed.
const RETIREMENT_GRACE: Duration = Duration::from_secs(5);

/// A running Envoy.
#[derive(Debug)]
pub(super) struct Instance {
    pub(super) process: EnvoyProcess,
    pub(super) base_id: u32,
    pub(super) epoch: u32,
    pub(super) since: Timestamp,
    pub(super) started: Instant,
    /// What its admin interface reported when it was live first.
    pub(super) info: Option<ServerInfo>,
}

/// The Envoy that is to replace the one that serves.
#[derive(Debug)]
pub(super) struct NextInstance {
    pub(super) instance: Instance,
    pub(super) checked: CheckedPlan,
    pub(super) admin: EnvoyAdmin,
    pub(super) deadline: Instant,
    /// The TCP connections of the Envoy that serves, counted when this one started.
    pub(super) tcp_connections: Option<u64>,
}

/// An Envoy that was replaced, and finishes its connections.
#[derive(Debug)]
pub(super) struct RetiringInstance {
    pub(super) instance: Instance,
    pub(super) ends_at: Timestamp,
    pub(super) deadline: Instant,
    is_terminated: bool,
}

impl Instance {
    pub(super) fn spawn(
        checked: &CheckedPlan,
        base_id: u32,
        epoch: u32,
        since: Timestamp,
    ) -> Result<Self, SupervisorError> {
        let CheckedPlan { program, plan, .. } = checked;
        plan.files.install().map_err(SupervisorError::Install)?;
        let process = EnvoyProcess::spawn(program, plan, base_id, epoch);
        let process = process
            .map_err(|source| SupervisorError::Spawn { program: program.clone(), source })?;
        Ok(Self { process, base_id, epoch, since, started: Instant::now(), info: None })
    }
}

impl NextInstance {
    pub(super) fn new(
        instance: Instance,
        checked: CheckedPlan,
        admin: EnvoyAdmin,
        tcp_connections: Option<u64>,
    ) -> Self {
        let deadline = Instant::now() + HANDOVER_LIMIT;
        Self { instance, checked, admin, deadline, tcp_connections }
    }

    /// The reason of a failure at the deadline.
    pub(super) fn timeout_reason() -> String {
        format!(
            "the new Envoy was not live within {} s, and was killed before it ended the old one; see its log, and \
             whether the control plane sends this proxy its configuration",
            HANDOVER_LIMIT.as_secs()
        )
    }
}

impl RetiringInstance {
    pub(super) fn new(instance: Instance, life: Duration, now: Timestamp) -> Self {
        let deadline = Instant::now() + life + RETIREMENT_GRACE;
        let ends_at = now.checked_add(life).unwrap_or(now);
        Self { instance, ends_at, deadline, is_terminated: false }
    }

    /// Ends it: by SIGTERM, and at the next deadline by SIGKILL.
    pub(super) fn end(&mut self) {
        use rustix::process::Signal;
        let signal = if self.is_terminated { Signal::KILL } else { Signal::TERM };
        tracing::info!(
            epoch = self.instance.epoch,
            ?signal,
            "replaced Envoy has not ended by itself; ending it"
        );
        self.instance.process.signal(signal);
        self.is_terminated = true;
        self.deadline = Instant::now() + RETIREMENT_GRACE;
    }
}
