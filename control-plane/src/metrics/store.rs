//! The metrics of what the control plane stores: whether it can, and what waits for it.

use ironmesh_store_etcd::StoreCondition;
use jiff::Timestamp;

use super::Sources;
use super::families::{Families, age};

pub(super) fn encode(
    families: &mut Families<'_>,
    sources: &Sources,
    now: Timestamp,
) -> Result<(), std::fmt::Error> {
    let local = [("local", *sources.local_outage.borrow())];
    let etcd = sources.etcd_store.as_ref().map(|etcd| ("etcd", outage(&etcd.condition())));
    let outages = local.into_iter().chain(etcd);
    let outages = outages.map(|(store, since)| ([store], age(since, now)));
    let help = "Time since a store has not been writable; 0 while it is";
    families.gauges("store_outage_seconds", help, ["store"], outages)?;
    let (pending, dropped) = sources.journal.queue();
    let help = "Entries of the journal that are not stored yet";
    families.gauge("journal_pending", help, pending)?;
    let help = "Entries of the journal that were lost, since too many were pending";
    families.counter("journal_dropped", help, dropped)
}

/// Since when a store in etcd cannot be read or written.
fn outage(condition: &StoreCondition) -> Option<Timestamp> {
    let outages = [&condition.unavailable, &condition.not_writable];
    outages.into_iter().flatten().map(|(since, _)| *since).min()
}
