//! The metrics of endpoints providers: whether one is stale as a whole, how many of its services are stale, held back or
//! flapping, and for how long.

use std::collections::BTreeSet;

use ironmesh_catalog::Provider;
use ironmesh_providers::GuardStatus;
use jiff::Timestamp;

use super::families::{Families, age};
use crate::reconciler::EndpointsView;

type OfProvider<'a> = &'a dyn Fn(Provider) -> usize;

pub(super) fn encode(
    families: &mut Families<'_>,
    known: &EndpointsView,
    now: Timestamp,
) -> Result<(), std::fmt::Error> {
    let providers: BTreeSet<Provider> =
        known.providers.keys().chain(known.guards.keys().map(|(of, _)| of)).copied().collect();
    let count = |provider: Provider, is_one: fn(&GuardStatus) -> bool| {
        let of_it = known.guards.iter().filter(|((of, _), _)| *of == provider);
        of_it.filter(|(_, guard)| is_one(guard)).count()
    };
    let is_stale = |provider| {
        usize::from(known.providers.get(&provider).is_some_and(|state| state.stale.is_some()))
    };
    let troubles = |provider| known.providers.get(&provider).map_or(0, |one| one.troubles.len());
    let stale: fn(&GuardStatus) -> bool =
        |guard| guard.report.as_ref().is_some_and(|report| report.stale.is_some());
    let gauges: [(&str, &str, OfProvider<'_>); 5] = [
        ("provider_stale", "Whether an endpoints provider has no usable source", &is_stale),
        ("endpoints_services", "Services that an endpoints provider reports", &|provider| {
            count(provider, |_| true)
        }),
        ("endpoints_services_stale", "Services whose report is stale", &|provider| {
            count(provider, stale) + troubles(provider)
        }),
        (
            "endpoints_services_held",
            "Services of which an endpoint removal is held back",
            &|provider| count(provider, |guard| guard.held.is_some()),
        ),
        ("endpoints_services_flapping", "Services with flapping endpoints", &|provider| {
            count(provider, |guard| !guard.flapping.is_empty())
        }),
    ];
    for (name, help, read) in gauges {
        let values = providers.iter().map(|provider| ([provider.to_string()], read(*provider)));
        families.gauges(name, help, ["provider"], values)?;
    }
    let ages = providers.iter().map(|provider| {
        let stale = stale_since(known, *provider).min();
        ([provider.to_string()], age(stale, now))
    });
    let help = "Age of the oldest answer of an endpoints provider that is in use although it is stale; 0 if none is";
    families.gauges("provider_answer_age_seconds", help, ["provider"], ages)?;
    let held = providers.iter().map(|provider| {
        let of_it = known.guards.iter().filter(|((of, _), _)| of == provider);
        let since = of_it.filter_map(|(_, guard)| guard.held.map(|held| held.since)).min();
        ([provider.to_string()], age(since, now))
    });
    let help =
        "Time for which the oldest held-back endpoint removal has been held back; 0 if none is";
    families.gauges("endpoints_held_seconds", help, ["provider"], held)
}

/// Since when a provider as a whole, or one of its services, has no newer answer.
fn stale_since(known: &EndpointsView, provider: Provider) -> impl Iterator<Item = Timestamp> {
    let state = known.providers.get(&provider);
    let whole = state.and_then(|state| state.stale.as_ref());
    let troubles = state.into_iter().flat_map(|state| state.troubles.values());
    let guards = known.guards.iter().filter(move |((of, _), _)| *of == provider);
    let reports = guards.filter_map(|(_, guard)| guard.report.as_ref()?.stale.as_ref());
    whole.into_iter().chain(troubles).chain(reports).map(|stale| stale.since)
}
