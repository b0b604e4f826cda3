//! The counts of the last minutes, in steps of a minute.

use std::collections::VecDeque;
use std::time::Duration;

use ironmesh_catalog::TrafficCounts;

/// How long a step is.
pub(super) const STEP: Duration = Duration::from_secs(60);

/// How many steps there are: the last one has begun just now.
pub(super) const STEPS: u64 = 10;

/// The counts by step, the oldest first.
#[derive(Debug, Default)]
pub(super) struct TrafficWindow {
    steps: VecDeque<(u64, TrafficCounts)>,
}

impl TrafficWindow {
    /// Adds what was counted in the last `seconds`. Counts that waited for long belong to the steps in which they were
    /// counted; it is unknown how they were distributed, so all steps get the same.
    pub(super) fn add(&mut self, step: u64, seconds: u64, counts: &TrafficCounts) {
        let intervals = seconds.saturating_add(STEP.as_secs() / 2) / STEP.as_secs();
        let intervals = intervals.max(1);
        for age in (0..intervals.min(STEPS)).rev() {
            if let Some(step) = step.checked_sub(age) {
                self.add_in(step, &counts.part(intervals - 1 - age, intervals));
            }
        }
        self.forget_old(step);
    }

    fn add_in(&mut self, step: u64, counts: &TrafficCounts) {
        if counts.is_empty() {
            return;
        }
        let index = self.steps.partition_point(|(known, _)| *known < step);
        match self.steps.get_mut(index) {
            Some((known, sum)) if *known == step => sum.add(counts),
            _ => self.steps.insert(index, (step, counts.clone())),
        }
    }

    /// Forgets what is older than the window. Returns whether anything is left.
    pub(super) fn forget_old(&mut self, step: u64) -> bool {
        while self.steps.front().is_some_and(|(known, _)| known + STEPS <= step) {
            self.steps.pop_front();
        }
        !self.steps.is_empty()
    }

    /// The sum of the window that ends with `step`.
    pub(super) fn sum(&self, step: u64) -> TrafficCounts {
        let mut sum = TrafficCounts::default();
        for (_, counts) in self.steps.iter().filter(|(known, _)| known + STEPS > step) {
            sum.add(counts);
        }
        sum
    }
}
