//! The index of a blocking query, by the rules of Consul's documentation ("Blocking Queries").

/// Where a query stands.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// With which index is asked next; without one, the agent answers at once.
    next: Option<u64>,
    /// The last one that was told.
    last: u64,
}

/// What an answer's index says.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing has happened: the wait is over.
    Same,
    /// Something has happened, perhaps elsewhere.
    Forward,
    /// Whoever answers knows less than who did before: it is behind, or has lost its memory.
    Backward,
}

impl Index {
    /// With which index is asked next.
    pub(super) fn next(&self) -> Option<u64> {
        self.next
    }

    /// The next answer comes at once. An agent that has lost its memory would keep a query with its old
    /// index waiting, and so would one that has been asked with another token.
    pub(super) fn restart(&mut self) {
        self.next = None;
    }

    /// Takes the index of an answer. After one that went backwards the query begins anew.
    pub(super) fn take(&mut self, index: u64) -> Step {
        let step = match index.cmp(&self.last) {
            std::cmp::Ordering::Less => Step::Backward,
            std::cmp::Ordering::Equal => Step::Same,
            std::cmp::Ordering::Greater => Step::Forward,
        };
        let was_asked_with = self.next.is_some();
        self.last = index;
        // The answer to a query without an index is whole, so there is nothing to begin anew for.
        self.next = (step != Step::Backward || !was_asked_with).then_some(index);
        step
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn first_query_has_no_index_and_the_next_has_the_last() {
        let mut index = Index::default();
        assert_eq!(index.next(), None);
        assert_eq!((index.take(15), index.next()), (Step::Forward, Some(15)));
        assert_eq!((index.take(15), index.next()), (Step::Same, Some(15)));
        assert_eq!((index.take(16), index.next()), (Step::Forward, Some(16)));
    }

    #[test]
    fn index_that_goes_backward_is_reset() {
        let mut index = Index::default();
        index.take(68);
        assert_eq!((index.take(11), index.next()), (Step::Backward, None));
        assert_eq!((index.take(11), index.next()), (Step::Same, Some(11)));
    }

    #[test]
    fn restart_still_detects_a_backward_index() {
        let mut index = Index::default();
        index.take(68);
        index.restart();
        assert_eq!(index.next(), None);
        assert_eq!((index.take(11), index.next()), (Step::Backward, Some(11)));
    }
}
