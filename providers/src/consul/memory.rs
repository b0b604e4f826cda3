//! Detects agents that may have lost their memory.

/// What earlier answers contained.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Whether an index went backward, and no answer since had as many instances as before.
    is_lost: bool,
    /// The number of instances before the loss.
    most: usize,
}

impl Memory {
    /// Applies an answer with `count` instances, and returns whether the agent has its memory.
    pub(super) fn is_whole(&mut self, is_backward: bool, count: usize) -> bool {
        self.is_lost = (self.is_lost || is_backward) && count < self.most;
        !self.is_lost
    }

    /// Records the size of an authoritative answer.
    pub(super) fn knows(&mut self, count: usize) {
        self.most = count;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn agent_that_lost_state_is_authoritative_once_recovered() {
        let mut memory = Memory { is_lost: false, most: 3 };
        assert!(memory.is_whole(false, 0), "a scale to zero is none");
        memory.most = 3;
        assert!(!memory.is_whole(true, 0));
        assert!(!memory.is_whole(false, 2), "it fills again");
        assert!(memory.is_whole(false, 3));
        assert!(memory.is_whole(false, 1), "and forgets nothing any more");
        assert!(memory.is_whole(true, 3), "an agent that is a little behind knows no less");
    }
}
