//! Which queries do well: how many of them have had an answer, and no fault since.
//!
//! An agent that answers others is not to be left because one question fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How many queries do well.
#[derive(Debug, Clone, Default)]
pub(super) struct Wellness(Arc<AtomicUsize>);

/// Whether one query does well. It counts as long as it is kept.
#[derive(Debug)]
pub(super) struct Well {
    all: Wellness,
    is_well: bool,
}

impl Wellness {
    /// One query more, which does not do well yet.
    pub(super) fn one(&self) -> Well {
        Well { all: self.clone(), is_well: false }
    }

    /// Whether there is a query that does well.
    pub(super) fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl Well {
    pub(super) fn set(&mut self, is_well: bool) {
        match (std::mem::replace(&mut self.is_well, is_well), is_well) {
            (false, true) => self.all.0.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.all.0.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

impl Drop for Well {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_live_query_counts_once() {
        let all = Wellness::default();
        let (mut one, mut other) = (all.one(), all.one());
        assert!(!all.is_any());
        one.set(true);
        one.set(true);
        other.set(true);
        one.set(false);
        assert!(all.is_any());
        drop(other);
        assert!(!all.is_any());
    }
}
