//! The facts that the live demo shows.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::control_plane::PolicyView;
use crate::program::DemoEnvoyVersion;
use crate::tally::Count;

/// The facts that do not change while the demo runs.
#[derive(Debug, Clone)]
pub(super) struct DemoSetup {
    pub(super) policy_folder: PathBuf,
    pub(super) admin: SocketAddr,
    pub(super) envoy: DemoEnvoyVersion,
}

/// A call that one client repeats.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct RepeatedCall {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) request: &'static str,
}

/// The current facts.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// The counts of each repeated call.
    pub(super) rows: Vec<(RepeatedCall, Count)>,
    /// The share of the second version in the buyer's last answers, from 0 to 1.
    pub(super) second: Option<f64>,
    /// The policy in the control plane's last answer.
    pub(super) policy: PolicyView,
    /// The seconds since that answer, if it is overdue.
    pub(super) silent: Option<u64>,
}

/// The text for a control plane that does not answer.
pub(super) fn silence(seconds: u64) -> String {
    format!("the control plane has not answered for {seconds} s")
}

/// The names and shares of the two versions.
pub(super) fn shares(facts: &Facts) -> [(&'static str, Option<f64>); 2] {
    [("bookstore-v1", facts.second.map(|second| 1.0 - second)), ("bookstore-v2", facts.second)]
}

/// A share in percent, as it is written.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}
