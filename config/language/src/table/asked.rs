//! Which keys the readers of tables ask for, noted for tests: the schema must have the same.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// What a table is → the keys that were asked for.
pub(crate) type Asked = BTreeMap<&'static str, BTreeSet<&'static str>>;

thread_local! {
    static ASKED: RefCell<Asked> = RefCell::default();
}

/// Notes what was asked of a table that is `what`.
pub(super) fn note(what: &'static str, keys: &[&'static str]) {
    ASKED.with_borrow_mut(|asked| asked.entry(what).or_default().extend(keys));
}

/// All that this thread has asked for.
pub(crate) fn take() -> Asked {
    ASKED.take()
}
