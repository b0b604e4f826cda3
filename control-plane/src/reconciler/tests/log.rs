//! What is logged on the thread of a test.

use std::io;
use std::sync::Arc;

use parking_lot::Mutex;
use tracing::subscriber::DefaultGuard;

pub(super) struct Log {
    written: Written,
    _guard: DefaultGuard,
}

#[derive(Clone, Default)]
struct Written(Arc<Mutex<Vec<u8>>>);

impl Log {
    /// Begins to listen, for as long as this is there.
    pub(super) fn begin() -> Self {
        let written = Written::default();
        let writer = written.clone();
        let log = tracing_subscriber::fmt().with_ansi(false).with_writer(move || writer.clone());
        let guard = tracing::subscriber::set_default(log.finish());
        Self { written, _guard: guard }
    }

    /// How many lines have these words in them.
    pub(super) fn count(&self, words: &str) -> usize {
        let written = self.written.0.lock();
        String::from_utf8_lossy(&written).lines().filter(|line| line.contains(words)).count()
    }
}

impl io::Write for Written {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.0.lock().extend_from_slice(bytes);
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}
