//! The index of a blocking query, by the rules of Consul's documentation ("Blocking Queries").

/// The index of one query.
#[derive(Debug, Default)]
pub(super) struct Index {
    /// The index of the next request; without one, the agent answers at once.
    next: Option<u64>,
    /// The index of the last answer.
    last: u64,
}

/// How an index compares with the previous one.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Step {
    /// Nothing has changed: the wait is over.
    Same,
    /// Something has changed, perhaps elsewhere.
    Forward,
    /// The agent knows less than before: it is stale, or has lost its memory.
    Backward,
}

impl Index {
    /// The index of the next request.
    pub(super) fn next(&self) -> Option<u64> {
        self.next
    }

    /// Makes the next answer come at once. An agent that has lost its memory would keep a query
    /// with the old index waiting; so would one that was queried with another token.
    pub(super) fn restart(&mut self) {
        self.next = None;
    }

    /// Applies the index of an answer. After a backward one, the query restarts.
    pub(super) fn take(&mut self, index: u64) -> Step {
        let step = match index.cmp(&self.last) {
            std::cmp::Ordering::Less => Step::Backward,
            std::cmp::Ordering::Equal => Step::Same,
            std::cmp::Ordering::Greater => Step::Forward,
        };
        let had_index = self.next.is_some();
        self.last = index;
        // The answer to a query without an index is complete, so there is no need to restart.
        self.next = (step != Step::Backward || !had_index).then_some(index);
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
