//! Combination of treatments and destinations into the one list of routes of a sidecar.

use super::Treatment;
use crate::policy::HttpMatch;
use crate::splits::{both, is_unreachable};

/// One route of a sidecar: requests that meet all conditions, and no earlier route.
#[derive(Debug, Clone)]
pub struct Crossing<'a> {
    /// The conditions.
    pub conditions: Vec<&'a HttpMatch>,
    /// The index of the treatment.
    pub treatment: usize,
    /// The index of the split path.
    pub path: usize,
}

/// Each treatment with each split path, given by their conditions, in this order: the first matching route has
/// the first treatment and the first path that apply to a request. Routes that no request can reach are left
/// out.
pub fn cross<'a>(
    treatments: &[Treatment<'a>],
    paths: &[impl AsRef<[&'a HttpMatch]>],
) -> Vec<Crossing<'a>> {
    let mut crossings: Vec<Crossing<'a>> = Vec::new();
    for (treatment, settings) in treatments.iter().enumerate() {
        for (path, conditions) in paths.iter().enumerate() {
            let own: Vec<_> = settings.condition.into_iter().collect();
            let conditions = both(&own, conditions.as_ref());
            // Paths alone contain no unreachable one.
            let before = crossings.iter().map(|one| &one.conditions);
            if treatments.len() == 1 || !is_unreachable(&conditions, before) {
                crossings.push(Crossing { conditions, treatment, path });
            }
        }
    }
    crossings
}
