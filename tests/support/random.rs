//! Random numbers with a seed, so that a failed run can be repeated.

use std::ops::Range;
use std::time::Duration;

/// A random number generator with a seed (SplitMix64).
#[derive(Debug, Clone)]
pub struct SeededRandom(u64);

impl SeededRandom {
    /// A generator whose numbers this seed decides.
    pub fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent generator.
    #[must_use]
    pub fn split(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    /// A number from 0 up to, but not including, `end`.
    pub fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap();
        usize::try_from(self.next() % end).unwrap()
    }

    /// True once in this many times on average.
    pub fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    /// One of the elements, of which there must be some.
    pub fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        from.get(self.below(from.len())).expect("there is an element")
    }

    /// A duration in this range of milliseconds.
    pub fn millis(&mut self, range: Range<usize>) -> Duration {
        let millis = range.start + self.below(range.len());
        Duration::from_millis(u64::try_from(millis).unwrap())
    }
}
