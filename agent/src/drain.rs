//! The order of an operator to drain this machine: the agent hands it over to the supervisor of Envoy, and reports how far
//! that is.
//!
//! The control plane repeats the order with each answer to a health report, so that this module keeps no state over a
//! restart. It ends no process itself (docs/decisions/0098).

use ironmesh_agent_envoy::{EnvoyState, SupervisorClient, SupervisorClientError, SupervisorStatus};
use ironmesh_catalog::MachineDrainState;
use ironmesh_catalog::text::chain;
use ironmesh_enrollment::{DrainOrder, DrainReport};
use jiff::Timestamp;

use crate::settings::AgentSettings;

/// What the supervisor has to do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Step {
    None,
    Hold,
    Resume,
}

/// Follows the orders of the control plane.
#[derive(Debug)]
pub(crate) struct DrainFollower {
    supervisor: SupervisorClient,
    /// The newest order, by its time.
    ordered: Option<Timestamp>,
    /// Whether the supervisor could not be reached for it. Logged once.
    is_failing: bool,
}

impl DrainFollower {
    pub(crate) fn new(settings: &AgentSettings) -> Self {
        let supervisor = SupervisorClient::new(&settings.folder);
        Self { supervisor, ordered: None, is_failing: false }
    }

    /// How far the machine is with the newest order.
    pub(crate) async fn report(&self) -> Option<DrainReport> {
        let ordered = self.ordered?;
        let state = match self.supervisor.status().await {
            Ok(status) => state_of(&status)?,
            Err(SupervisorClientError::Unreachable { .. }) => MachineDrainState::Unsupervised,
            Err(_) => return None,
        };
        Some(DrainReport { ordered, state })
    }

    /// Carries out an order; none of a control plane that gives no orders. Returns whether that has changed anything, so that
    /// a report is due.
    pub(crate) async fn follow(&mut self, order: Option<DrainOrder>) -> bool {
        let Some(order) = order else { return false };
        let is_new = self.ordered != order.ordered;
        self.ordered = order.ordered;
        let Ok(status) = self.supervisor.status().await else {
            // Without an order, an Envoy that is run by hand is none of the agent's business.
            return is_new && order.ordered.is_some();
        };
        let (step, done) = match next_step(order, status.state) {
            Step::None => return is_new,
            Step::Hold => ("drain Envoy", self.supervisor.hold().await),
            Step::Resume => ("start Envoy again", self.supervisor.resume().await),
        };
        match done {
            Ok(()) => {
                self.is_failing = false;
                tracing::info!(
                    step,
                    reason = "the control plane orders it",
                    "order handed over to the supervisor"
                );
            }
            Err(error) if !std::mem::replace(&mut self.is_failing, true) => {
                tracing::warn!(
                    step,
                    error = chain(&error),
                    "cannot hand over an order to the supervisor"
                );
            }
            Err(_) => {}
        }
        true
    }
}

/// The state of the machine while an order to drain it stands; none before the supervisor drains.
fn state_of(status: &SupervisorStatus) -> Option<MachineDrainState> {
    match status.state {
        EnvoyState::Draining => Some(MachineDrainState::Draining),
        EnvoyState::Drained => Some(MachineDrainState::Drained),
        _ => None,
    }
}

/// What the supervisor has to do for an order.
fn next_step(order: DrainOrder, state: EnvoyState) -> Step {
    match (order.ordered, state) {
        (None, EnvoyState::Drained) => Step::Resume,
        // (A drain that was ordered before ends first.)
        (None, _) | (Some(_), EnvoyState::Draining | EnvoyState::Drained) => Step::None,
        // The machine has booted since then.
        (Some(_), _) if order.is_done => Step::None,
        (Some(_), _) => Step::Hold,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn order_is_carried_out_once_and_its_end_starts_envoy() {
        let order = |is_done| DrainOrder { ordered: Some(Timestamp::UNIX_EPOCH), is_done };
        let none = DrainOrder::default();
        let running =
            [EnvoyState::Starting, EnvoyState::Live, EnvoyState::Reloading, EnvoyState::Restarting];
        for state in running {
            assert_eq!(next_step(order(false), state), Step::Hold);
            assert_eq!(next_step(order(true), state), Step::None, "it has booted since");
            assert_eq!(next_step(none, state), Step::None);
        }
        for state in [EnvoyState::Draining, EnvoyState::Drained] {
            assert_eq!(next_step(order(false), state), Step::None);
        }
        assert_eq!(next_step(none, EnvoyState::Draining), Step::None, "it ends first");
        assert_eq!(next_step(none, EnvoyState::Drained), Step::Resume);
    }
}
