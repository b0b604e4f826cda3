//! The comparison of an answer with the one before it.

use super::super::id::ResourceId;
use super::super::list_state::is_off;
use super::super::lists::Contents;

impl Contents {
    /// Whether earlier machines or scale sets are missing.
    pub(super) fn lacks_some_of(&self, before: &Self) -> bool {
        match (self, before) {
            (Self::Machines(now), Self::Machines(before)) => {
                let knows = |id| {
                    now.good.contains_key(id)
                        || now.unreadable.iter().any(|one| one.id.as_ref() == Some(id))
                };
                !before.good.keys().all(knows)
            }
            (Self::ScaleSets(now), Self::ScaleSets(before)) => {
                !before.good.keys().all(|id| now.good.contains_key(id))
            }
            _ => false,
        }
    }

    /// Merges two answers; `self` has precedence.
    pub(super) fn with(self, other: Self) -> Self {
        match (self, other) {
            (Self::Machines(mut now), Self::Machines(before)) => {
                for (id, machine) in before.good {
                    now.good.entry(id).or_insert(machine);
                }
                Self::Machines(now)
            }
            (Self::ScaleSets(mut now), Self::ScaleSets(before)) => {
                for (id, set) in before.good {
                    now.good.entry(id).or_insert(set);
                }
                Self::ScaleSets(now)
            }
            (now, _) => now,
        }
    }

    /// Returns the machines that appeared or started since.
    pub(super) fn came(&self, before: &Self) -> Vec<ResourceId> {
        let is_on = |id: &ResourceId, contents: &Self| match contents {
            Self::Machines(machines) => machines
                .good
                .get(id)
                .filter(|machine| !is_off(&machine.state))
                .map(|machine| machine.vm_id),
            Self::States(states) => states.get(id).filter(|state| !is_off(state)).map(|_| None),
            _ => None,
        };
        let ids: Vec<_> = match self {
            Self::Machines(machines) => machines.good.keys().collect(),
            Self::States(states) => states.keys().collect(),
            _ => return Vec::new(),
        };
        let came = ids.into_iter().filter(|id| {
            let now = is_on(id, self);
            now.is_some() && now != is_on(id, before)
        });
        came.cloned().collect()
    }
}
