//! Lists in which an item counts once, however often it is written.

use std::collections::BTreeSet;

/// The items in their order, each once: a repetition has no meaning.
pub(super) fn without_repeats<T: Ord + Clone>(mut items: Vec<T>) -> Vec<T> {
    let mut seen = BTreeSet::new();
    items.retain(|item| seen.insert(item.clone()));
    items
}
