//! How a request is treated, and where it goes, are decided apart from each other. A sidecar has one list of
//! routes for both.

use super::Treatment;
use crate::policy::HttpMatch;
use crate::splits::{both, is_taken};

/// One of the routes of a sidecar: requests of which all of this holds, and of none before it.
#[derive(Debug, Clone)]
pub struct Crossing<'a> {
    /// What must hold.
    pub conditions: Vec<&'a HttpMatch>,
    /// The number of the treatment.
    pub treatment: usize,
    /// The number of the way.
    pub way: usize,
}

/// Each treatment with each way, whose conditions are given, in this order: so that the first whose
/// conditions hold has the first treatment and the first way that are for a request. Those that would get
/// no request are left out.
pub fn cross<'a>(
    treatments: &[Treatment<'a>],
    ways: &[impl AsRef<[&'a HttpMatch]>],
) -> Vec<Crossing<'a>> {
    let mut crossings: Vec<Crossing<'a>> = Vec::new();
    for (treatment, treated) in treatments.iter().enumerate() {
        for (way, conditions) in ways.iter().enumerate() {
            let own: Vec<_> = treated.condition.into_iter().collect();
            let conditions = both(&own, conditions.as_ref());
            // Of ways alone this is known.
            let before = crossings.iter().map(|one| &one.conditions);
            if treatments.len() == 1 || !is_taken(&conditions, before) {
                crossings.push(Crossing { conditions, treatment, way });
            }
        }
    }
    crossings
}
