//! New connections of Envoy to the control plane: after its restart the control plane knows no health until the next report.
//!
//! A connection of the agent's own would show the restart, too, and cost the control plane one for each machine.

use std::time::Duration;

use ironmesh_sidecar::envoy::CONTROL_PLANE_CLUSTER;
use tokio::time::{MissedTickBehavior, interval};

use crate::settings::AgentSettings;
use crate::status::get;
use crate::supervised::admin_address;

/// The interval in which the agent looks.
const INTERVAL: Duration = Duration::from_secs(1);

const CONNECTED: &str = "control_plane.connected_state: 1";

/// The connections of Envoy, as they were at the last look.
#[derive(Debug, Default)]
pub(super) struct Reconnects {
    /// How many Envoy has opened, and whether it is connected; none before the first look.
    last: Option<String>,
}

impl Reconnects {
    /// Waits until Envoy has a new connection. Nothing is lost if the future is dropped.
    pub(super) async fn next(&mut self, settings: &AgentSettings) {
        let mut looks = interval(INTERVAL);
        looks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        loop {
            looks.tick().await;
            // Envoy starts, ends, or is busy: nothing is known of its connection.
            let Some(stats) = stats(settings).await else { continue };
            if self.is_new(stats) {
                return;
            }
        }
    }

    /// Notes the counters, and returns whether Envoy has a connection that it did not have at an earlier look.
    fn is_new(&mut self, stats: String) -> bool {
        let is_connected = stats.lines().any(|line| line == CONNECTED);
        if !is_connected || self.last.as_ref() == Some(&stats) {
            return false;
        }
        self.last.replace(stats).is_some()
    }
}

async fn stats(settings: &AgentSettings) -> Option<String> {
    let path = format!(
        "/stats?filter=^(control_plane%5C.connected_state|cluster%5C.{CONTROL_PLANE_CLUSTER}%5C.upstream_cx_total)$"
    );
    let stats = get(&admin_address(settings).ok()?, &path).await.ok()?;
    Some(String::from_utf8_lossy(stats.as_ref()).into_owned())
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(connections: u32, state: u32) -> String {
        format!(
            "cluster.ironmesh-control-plane.upstream_cx_total: {connections}\ncontrol_plane.connected_state: {state}\n"
        )
    }

    #[test]
    fn new_connection_is_noticed_once_and_only_while_connected() {
        let mut reconnects = Reconnects::default();
        assert!(!reconnects.is_new(stats(1, 1)), "the first look");
        assert!(!reconnects.is_new(stats(1, 1)));
        assert!(!reconnects.is_new(stats(3, 0)), "it tries to connect");
        assert!(reconnects.is_new(stats(4, 1)));
        assert!(!reconnects.is_new(stats(4, 1)));
        assert!(reconnects.is_new(stats(5, 1)), "too fast for a look in between");
    }
}
