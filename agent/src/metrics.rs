//! The metrics of the agent, in the OpenMetrics text format.

use std::path::Path;
use std::sync::atomic::AtomicU64;

use prometheus_client::encoding::text::encode;
use prometheus_client::metrics::counter::Counter;
use prometheus_client::metrics::family::Family;
use prometheus_client::metrics::gauge::Gauge;
use prometheus_client::metrics::info::Info;
use prometheus_client::registry::Registry;

use crate::activity::{AgentActivity, AgentPhase};
use crate::status::certificate_expiry;

/// The metrics as text. They are made for each scrape, since there are few.
pub(crate) fn text(activity: &AgentActivity, folder: &Path) -> String {
    let mut registry = Registry::with_prefix("ironmesh");
    let version = vec![("version".to_owned(), env!("CARGO_PKG_VERSION").to_owned())];
    registry.register("agent_build", "The version of the agent", Info::new(version));
    let enrolled = Gauge::<i64>::default();
    enrolled.set(i64::from(activity.phase == AgentPhase::Enrolled));
    registry.register(
        "agent_enrolled",
        "Whether the machine is enrolled and not revoked",
        enrolled,
    );
    let failing = Gauge::<i64>::default();
    failing.set(i64::from(activity.is_failing));
    registry.register("agent_failing", "Whether the last join or renewal failed", failing);
    let renewals = Family::<Vec<(&str, &str)>, Counter<u64, AtomicU64>>::default();
    for (outcome, count) in [("renewed", activity.renewals), ("failed", activity.failed_renewals)] {
        renewals.get_or_create(&vec![("outcome", outcome)]).inc_by(count);
    }
    registry.register(
        "agent_renewals",
        "Attempts to renew the proxy certificate, by outcome",
        renewals,
    );
    let nacks = Counter::<u64, AtomicU64>::default();
    nacks.inc_by(activity.secret_nacks);
    registry.register("agent_secret_nacks", "Service certificates that Envoy has NACKed", nacks);
    if let Some(expires_at) = certificate_expiry(folder) {
        let expiry = Gauge::<i64>::default();
        expiry.set(expires_at.as_second());
        registry.register(
            "agent_proxy_certificate_expiration_timestamp_seconds",
            "When the proxy certificate expires, in seconds since 1970",
            expiry,
        );
    }
    let mut text = String::new();
    match encode(&mut text, &registry) {
        Ok(()) => text,
        // Writing to a string does not fail.
        Err(error) => format!("# {error}\n"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn metrics_count_renewals_by_outcome() {
        let activity =
            AgentActivity { renewals: 3, failed_renewals: 2, ..AgentActivity::default() };
        let text = text(&activity, Path::new("/nonexistent"));
        for line in [
            "ironmesh_agent_renewals_total{outcome=\"renewed\"} 3",
            "ironmesh_agent_renewals_total{outcome=\"failed\"} 2",
            "ironmesh_agent_enrolled 0",
        ] {
            assert!(text.lines().any(|known| known == line), "{text}");
        }
        assert!(!text.contains("expiration"), "{text}");
    }
}
