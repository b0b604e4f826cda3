//! The seeds of scenarios, so that a failed run can be repeated.

use crate::proxy::Variant;

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
