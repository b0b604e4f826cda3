//! Writes that fail on a test's command, as on a full disk.

use std::io;
use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

#[derive(Debug, Default)]
pub(crate) struct Faults {
    is_full: AtomicBool,
    failed: AtomicUsize,
}

impl Faults {
    /// Makes writes fail from now on, or succeed again.
    pub(crate) fn set_full(&self, is_full: bool) {
        self.is_full.store(is_full, Ordering::Relaxed);
    }

    /// How many writes have failed.
    pub(crate) fn failed(&self) -> usize {
        self.failed.load(Ordering::Relaxed)
    }

    pub(crate) fn check(&self) -> io::Result<()> {
        if !self.is_full.load(Ordering::Relaxed) {
            return Ok(());
        }
        self.failed.fetch_add(1, Ordering::Relaxed);
        Err(io::ErrorKind::StorageFull.into())
    }
}
