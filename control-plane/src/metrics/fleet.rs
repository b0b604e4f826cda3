//! The metrics of the fleet: the versions of its programs, and the proxies that operators have taken out of service.

use ironmesh_catalog::{Cordon, CordonMode};
use jiff::Timestamp;

use super::families::{Families, age};
use crate::register::Register;
use crate::versions;

/// Encodes them. They follow from the join records, so that all control planes of a mesh have the same.
pub(super) fn encode(
    families: &mut Families<'_>,
    register: &Register,
    now: Timestamp,
) -> Result<(), std::fmt::Error> {
    let records = register.records();
    let report = versions::report(&records);
    let counted = versions::labelled(&report).into_iter().flat_map(|(component, counts)| {
        counts.into_iter().map(move |(version, count)| ([component.to_owned(), version], count))
    });
    let help = "Proxies in use by the last known version of a program";
    families.gauges("proxy_versions", help, ["component", "version"], counted)?;
    let below = [("envoy", &report.envoy), ("agent", &report.agent)]
        .map(|(component, versions)| ([component], versions.below_minimum));
    let help =
        "Proxies in use whose last known version of a program is below the supported minimum";
    families.gauges("proxies_below_minimum", help, ["component"], below)?;
    let modes = [(CordonMode::Cordon, "cordon"), (CordonMode::Drain, "drain")];
    let of = |mode| {
        let cordons = records.values().filter_map(|record| record.cordon.as_ref());
        cordons.filter(move |cordon: &&Cordon| cordon.mode() == mode)
    };
    let help = "Proxies in use that operators have cordoned or drained";
    let cordoned = modes.map(|(mode, word)| ([word], of(mode).count()));
    families.gauges("proxies_cordoned", help, ["mode"], cordoned)?;
    let help = "Time since the first proxy in use that is still cordoned or drained was cordoned; 0 if none is";
    let since = |mode| of(mode).map(|cordon| cordon.since).min();
    let ages = modes.map(|(mode, word)| ([word], age(since(mode), now)));
    families.gauges("proxies_cordoned_seconds", help, ["mode"], ages)
}
