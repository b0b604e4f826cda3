//! The log lines of a test.
//!
//! One subscriber serves all tests of the process. A subscriber per test loses lines: tracing caches for each log
//! statement whether anyone listens, and tests that begin and end at the same time leave a wrong answer there.

use std::cell::RefCell;
use std::io;
use std::sync::Once;

thread_local! {
    /// What the test of this thread has logged, while it listens.
    static WRITTEN: RefCell<Option<Vec<u8>>> = const { RefCell::new(None) };
}

/// Collects the log lines of this thread until it is dropped.
pub(super) struct Log(());

impl Log {
    pub(super) fn begin() -> Self {
        static INSTALLED: Once = Once::new();
        INSTALLED.call_once(|| {
            tracing_subscriber::fmt().with_ansi(false).with_writer(|| ThreadWriter).init();
        });
        WRITTEN.set(Some(Vec::new()));
        Self(())
    }

    /// The number of lines that contain these words.
    #[expect(clippy::unused_self, reason = "only a log that has begun collects lines")]
    pub(super) fn count(&self, words: &str) -> usize {
        let count = |written: &[u8]| {
            String::from_utf8_lossy(written).lines().filter(|line| line.contains(words)).count()
        };
        WRITTEN.with_borrow(|written| written.as_deref().map_or(0, count))
    }
}

impl Drop for Log {
    fn drop(&mut self) {
        WRITTEN.set(None);
    }
}

/// Appends to what the test of this thread has logged.
struct ThreadWriter;

impl io::Write for ThreadWriter {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        WRITTEN.with_borrow_mut(|written| {
            if let Some(written) = written {
                written.extend_from_slice(bytes);
            }
        });
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
