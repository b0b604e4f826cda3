//! What is true at a moment, for whoever shows it.

use std::net::SocketAddr;
use std::path::PathBuf;

use crate::control_plane::PolicyView;
use crate::program::EnvoyVersion;
use crate::tally::Count;

/// What stays as it is.
#[derive(Debug, Clone)]
pub(super) struct Ground {
    pub(super) policy_folder: PathBuf,
    pub(super) admin: SocketAddr,
    pub(super) envoy: EnvoyVersion,
}

/// Somebody who asks somebody for something, again and again.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Habit {
    pub(super) from: &'static str,
    pub(super) to: &'static str,
    pub(super) request: &'static str,
}

/// What is true now.
#[derive(Debug, Clone)]
pub(super) struct Facts {
    /// What came of each habit.
    pub(super) rows: Vec<(Habit, Count)>,
    /// The share of the second version in the buyer's last answers, from 0 to 1.
    pub(super) second: Option<f64>,
    /// The last that the control plane said.
    pub(super) policy: PolicyView,
    /// For how many seconds it has said nothing, when that is longer than it should be.
    pub(super) silent: Option<u64>,
}

/// That the control plane does not answer, in words.
pub(super) fn silence(seconds: u64) -> String {
    format!("the control plane has not answered for {seconds} s")
}

/// The two versions, and what they are called where their shares are shown.
pub(super) fn shares(facts: &Facts) -> [(&'static str, Option<f64>); 2] {
    [("bookstore-v1", facts.second.map(|second| 1.0 - second)), ("bookstore-v2", facts.second)]
}

/// A share in percent, as it is written.
pub(super) fn percent(share: Option<f64>) -> String {
    share.map_or_else(|| "-".to_owned(), |share| format!("{:.0} %", 100.0 * share))
}
