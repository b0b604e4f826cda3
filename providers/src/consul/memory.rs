//! Whether those who answer may have lost their memory.

/// What is remembered of those who answer.
#[derive(Debug, Default)]
pub(super) struct Memory {
    /// Whether an index has gone backwards, and no answer since has told as much as before.
    is_lost: bool,
    /// How many there were when it was not lost.
    most: usize,
}

impl Memory {
    /// Takes an answer of so many, and says whether it is told by somebody who knows all.
    pub(super) fn is_whole(&mut self, is_backward: bool, count: usize) -> bool {
        self.is_lost = (self.is_lost || is_backward) && count < self.most;
        !self.is_lost
    }

    /// So many there are, and nobody doubts it.
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
