//! Counts the queries that succeed: those with an answer, and no failure since.
//!
//! An agent on which other queries succeed must not be left because one query fails.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The number of healthy queries.
#[derive(Debug, Clone, Default)]
pub(super) struct HealthyQueries(Arc<AtomicUsize>);

/// Whether one query is healthy. It counts as long as this exists.
#[derive(Debug)]
pub(super) struct QueryHealth {
    all: HealthyQueries,
    is_healthy: bool,
}

impl HealthyQueries {
    /// Adds a query, which is not healthy yet.
    pub(super) fn one(&self) -> QueryHealth {
        QueryHealth { all: self.clone(), is_healthy: false }
    }

    /// Whether at least one query is healthy.
    pub(super) fn is_any(&self) -> bool {
        self.0.load(Ordering::Relaxed) > 0
    }
}

impl QueryHealth {
    pub(super) fn set(&mut self, is_healthy: bool) {
        match (std::mem::replace(&mut self.is_healthy, is_healthy), is_healthy) {
            (false, true) => self.all.0.fetch_add(1, Ordering::Relaxed),
            (true, false) => self.all.0.fetch_sub(1, Ordering::Relaxed),
            _ => 0,
        };
    }
}

impl Drop for QueryHealth {
    fn drop(&mut self) {
        self.set(false);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn each_live_query_counts_once() {
        let all = HealthyQueries::default();
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
