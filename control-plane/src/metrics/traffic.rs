//! The metrics of calls between services.

use std::fmt::Error;

use ironmesh_analysis::reach::is_port_reachable;
use ironmesh_catalog::Snapshot;

use super::families::Families;
use crate::audit::Audit;
use crate::traffic_table::{CLASSES, RequestsByClass, TrafficPair, TrafficTable};

/// The value of both labels of requests that no labelled pair has.
const OTHER: &str = "other";

/// The requests by caller and service port, as far as policy allows the pair; the rest together.
pub(super) fn requests(
    families: &mut Families<'_>,
    traffic: &TrafficTable,
    snapshot: Option<&Snapshot>,
) -> Result<(), Error> {
    let totals = traffic.request_totals(|pair| is_allowed(snapshot, pair));
    let samples = |caller: String, service: String, requests: RequestsByClass| {
        let samples = CLASSES.into_iter().zip(requests);
        samples
            .map(move |(class, count)| ([caller.clone(), service.clone(), class.to_owned()], count))
    };
    let labelled = totals.labelled.into_iter();
    let labelled = labelled.flat_map(|((caller, port), requests)| {
        samples(caller.to_string(), port.to_string(), requests)
    });
    let other = samples(OTHER.to_owned(), OTHER.to_owned(), totals.other);
    let help = "Requests that callers' proxies reported, by caller, service port and class of the status; pairs that policy does not allow, or beyond 2,000, are other";
    families.counters("mesh_requests", help, ["caller", "service", "class"], labelled.chain(other))
}

/// Whether policy allows the pair. It is unknown before the first snapshot.
fn is_allowed(snapshot: Option<&Snapshot>, (caller, port): &TrafficPair) -> bool {
    snapshot.is_none_or(|snapshot| {
        let caller = snapshot.service(caller);
        caller.is_some_and(|caller| is_port_reachable(snapshot, &caller.account, port))
    })
}

/// The denials of audit mode by caller and service port, as far as their bound allows; the rest by port.
pub(super) fn denials(families: &mut Families<'_>, audit: &Audit) -> Result<(), Error> {
    let (counted, others) = audit.counted();
    let counted = counted
        .into_iter()
        .map(|((caller, port), count)| ([caller.to_string(), port.to_string()], count));
    let others =
        others.into_iter().map(|(port, count)| (["others".to_owned(), port.to_string()], count));
    let help = "Calls of services in audit that strict would have denied";
    families.counters("audit_would_deny", help, ["caller", "service"], counted.chain(others))
}
