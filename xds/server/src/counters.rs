//! What the engine has done, counted. Counters, not clocks, guard the cost of a change.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};

use ironmesh_xds_wire::ResourceType;

/// What the engine has done since its beginning.
#[derive(Debug)]
pub struct Counters {
    by_type: BTreeMap<ResourceType, Counts>,
    sets: AtomicU64,
}

#[derive(Debug, Default)]
struct Counts {
    pushes: AtomicU64,
    acks: AtomicU64,
    nacks: AtomicU64,
}

impl Default for Counters {
    fn default() -> Self {
        let by_type = ResourceType::ALL.into_iter().map(|of| (of, Counts::default())).collect();
        Self { by_type, sets: AtomicU64::new(0) }
    }
}

impl Counters {
    /// How many responses of a type were sent.
    pub fn pushes(&self, resource_type: ResourceType) -> u64 {
        self.read(resource_type, |counts| &counts.pushes)
    }

    /// How many of them were taken.
    pub fn acks(&self, resource_type: ResourceType) -> u64 {
        self.read(resource_type, |counts| &counts.acks)
    }

    /// How many of them were refused.
    pub fn nacks(&self, resource_type: ResourceType) -> u64 {
        self.read(resource_type, |counts| &counts.nacks)
    }

    /// How many times a client was given another set.
    pub fn sets(&self) -> u64 {
        self.sets.load(Ordering::Relaxed)
    }

    pub(crate) fn pushed(&self, resource_type: ResourceType) {
        self.count(resource_type, |counts| &counts.pushes);
    }

    pub(crate) fn acked(&self, resource_type: ResourceType) {
        self.count(resource_type, |counts| &counts.acks);
    }

    pub(crate) fn nacked(&self, resource_type: ResourceType) {
        self.count(resource_type, |counts| &counts.nacks);
    }

    pub(crate) fn set(&self) {
        self.sets.fetch_add(1, Ordering::Relaxed);
    }

    fn read(&self, of: ResourceType, which: impl Fn(&Counts) -> &AtomicU64) -> u64 {
        self.by_type.get(&of).map_or(0, |counts| which(counts).load(Ordering::Relaxed))
    }

    fn count(&self, of: ResourceType, which: impl Fn(&Counts) -> &AtomicU64) {
        if let Some(counts) = self.by_type.get(&of) {
            which(counts).fetch_add(1, Ordering::Relaxed);
        }
    }
}
