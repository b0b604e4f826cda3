//! Replay of the fuzz corpus, and random walks through the fuzzer's entry points.

use fs_err as fs;
use std::path::Path;

use super::*;

/// Runs a target on all inputs of its corpus.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        run(&fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 20, "{count} inputs in {}", folder.display());
}

/// A22.
#[test]
fn deframer_corpus_upholds_the_invariants() {
    replay("deframer", deframer);
}

/// A22.
#[test]
fn request_corpus_upholds_the_invariants() {
    replay("requests", requests);
}

/// A33.
#[test]
fn delta_walk_corpus_upholds_the_invariants() {
    replay("delta", delta);
}

/// A33.
#[test]
fn sotw_walk_corpus_upholds_the_invariants() {
    replay("sotw", sotw);
}

/// Runs random walks that are the same on every machine. `WALK_SEED` (the first seed) and
/// `WALK_RUNS` (how many) select others.
fn walk_at_random(run: fn(&[u8])) {
    let number = |variable: &str, otherwise: u64| {
        std::env::var(variable).map_or(otherwise, |value| value.parse().unwrap())
    };
    let first = number("WALK_SEED", 1);
    for seed in first..first + number("WALK_RUNS", 60) {
        let bytes = random_bytes(seed);
        let walk = std::panic::catch_unwind(|| run(&bytes));
        assert!(walk.is_ok(), "this walk breaks a rule (see above): WALK_SEED={seed} WALK_RUNS=1");
    }
}

/// Random bytes from `seed`, by SplitMix64.
fn random_bytes(seed: u64) -> Vec<u8> {
    let mut state = seed;
    let mut next = || {
        state = state.wrapping_add(0x9E37_79B9_7F4A_7C15);
        let mut mixed = state;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xBF58_476D_1CE4_E5B9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94D0_49BB_1331_11EB);
        mixed ^ (mixed >> 31)
    };
    let length = next() % 600;
    (0..length).map(|_| next().to_le_bytes()[0]).collect()
}

#[test]
fn random_delta_walks_uphold_the_invariants() {
    walk_at_random(delta);
}

#[test]
fn random_sotw_walks_uphold_the_invariants() {
    walk_at_random(sotw);
}

#[test]
fn random_requests_uphold_the_invariants() {
    walk_at_random(requests);
}
