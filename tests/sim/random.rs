//! Random numbers and seeds, so that a failed run can be repeated.

use std::ops::Range;
use std::time::Duration;

use crate::proxy::Variant;

/// A random number generator with a seed (SplitMix64).
#[derive(Debug, Clone)]
pub(crate) struct SeededRandom(u64);

impl SeededRandom {
    pub(crate) fn new(seed: u64) -> Self {
        Self(seed)
    }

    /// An independent generator.
    pub(crate) fn split(&mut self) -> Self {
        Self(self.next())
    }

    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut z = self.0;
        z = (z ^ (z >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        z = (z ^ (z >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        z ^ (z >> 31)
    }

    pub(crate) fn below(&mut self, end: usize) -> usize {
        let end = u64::try_from(end).unwrap();
        usize::try_from(self.next() % end).unwrap()
    }

    /// True once in this many times on average.
    pub(crate) fn once_in(&mut self, times: usize) -> bool {
        self.below(times) == 0
    }

    pub(crate) fn choose<'a, T>(&mut self, from: &'a [T]) -> &'a T {
        &from[self.below(from.len())]
    }

    pub(crate) fn millis(&mut self, range: Range<usize>) -> Duration {
        let millis = range.start + self.below(range.len());
        Duration::from_millis(u64::try_from(millis).unwrap())
    }
}

/// Runs a scenario in both variants.
pub(crate) fn in_both_variants(story: impl Fn(Variant, u64)) {
    with_seeds(1, |seed| {
        for variant in [Variant::Delta, Variant::Sotw] {
            story(variant, seed);
        }
    });
}

/// Runs a scenario with this many seeds, unless the environment sets others.
pub(crate) fn with_seeds(runs: u64, story: impl Fn(u64)) {
    let number = |name: &str| {
        let text = std::env::var(name).ok()?;
        Some(text.parse::<u64>().unwrap_or_else(|error| panic!("{name}={text}: {error}")))
    };
    let (first, requested) = (number("SIM_SEED"), number("SIM_RUNS"));
    let runs = requested.unwrap_or_else(|| if first.is_some() { 1 } else { runs });
    let first = first.unwrap_or(1);
    for seed in first..first + runs {
        let reported = PrintSeedOnFailure(seed);
        story(seed);
        drop(reported);
    }
}

/// Prints the seed when a scenario fails.
struct PrintSeedOnFailure(u64);

impl Drop for PrintSeedOnFailure {
    fn drop(&mut self) {
        if std::thread::panicking() {
            eprintln!("to run this story alone and again: SIM_SEED={}", self.0);
        }
    }
}
