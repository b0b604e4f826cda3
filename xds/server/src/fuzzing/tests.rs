//! What is kept of the corpus, and what the fuzzer has found.

use fs_err as fs;
use std::path::Path;

use super::*;

/// Tries all inputs that are kept of a target.
fn replay(target: &str, run: fn(&[u8])) {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("../../fuzz/corpus").join(target);
    let mut count = 0;
    for entry in fs::read_dir(&folder).unwrap() {
        run(&fs::read(entry.unwrap().path()).unwrap());
        count += 1;
    }
    assert!(count > 20, "{count} inputs in {}", folder.display());
}

#[test]
fn the_kept_inputs_of_the_deframer_keep_the_rules() {
    replay("deframer", deframer);
}

#[test]
fn the_kept_requests_keep_the_rules() {
    replay("requests", requests);
}

#[test]
fn the_kept_walks_of_delta_keep_the_rules() {
    replay("delta", delta);
}

#[test]
fn the_kept_walks_of_the_state_of_the_world_keep_the_rules() {
    replay("sotw", sotw);
}
