//! The keys that table readers read, recorded for tests: the schema must have the same.

use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};

/// The keys that readers read, by the kind of table.
pub(crate) type KeysRead = BTreeMap<&'static str, BTreeSet<&'static str>>;

thread_local! {
    static KEYS_READ: RefCell<KeysRead> = RefCell::default();
}

/// Records that a reader read `keys` of a table of the kind `what`.
pub(super) fn note(what: &'static str, keys: &[&'static str]) {
    KEYS_READ.with_borrow_mut(|key_log| key_log.entry(what).or_default().extend(keys));
}

/// Takes all keys that readers read on this thread.
pub(crate) fn take() -> KeysRead {
    KEYS_READ.take()
}
