//! The metrics of convergence: proxies by their state, and how long changes take.

use super::families::Families;
use crate::reconciler::convergence::{Convergence, Lag};

pub(super) fn encode(
    families: &mut Families<'_>,
    convergence: &Convergence,
) -> Result<(), std::fmt::Error> {
    let lagging = |lag| convergence.laggards().values().filter(|one| one.lag == lag).count();
    let states = [
        (["synced"], convergence.connected().saturating_sub(convergence.laggards().len())),
        (["updating"], lagging(Lag::Updating)),
        (["nacked"], lagging(Lag::Nacked)),
        (["held"], lagging(Lag::Held)),
        (["disconnected"], convergence.departed().len()),
    ];
    let help = "Proxies by how far they have ACKed what they should have";
    families.gauges("proxies_sync", help, ["state"], states)?;
    let durations = convergence.durations().histograms();
    let durations = durations.map(|(kind, histogram)| (kind.word(), histogram));
    let help = "Time until every proxy that a change touches has ACKed it";
    families.durations("convergence", help, "change", durations)
}
