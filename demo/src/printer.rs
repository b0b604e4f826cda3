//! Output: results on stdout, by a separate thread, and progress on stderr.
//!
//! A reader that stops reading blocks the writer. It must not keep the demo from handling signals.

use std::io::{Write as _, stderr, stdout};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Stdout is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StdoutClosed;

/// The queue to the thread that writes stdout.
#[derive(Debug)]
pub(crate) struct Printer {
    texts: mpsc::Sender<String>,
    /// Completes when the thread ends.
    done: oneshot::Receiver<()>,
}

impl Printer {
    pub(crate) fn start() -> Self {
        let (texts, mut waiting) = mpsc::channel::<String>(MOST_WAITING);
        let (end, done) = oneshot::channel();
        std::thread::spawn(move || {
            while let Some(text) = waiting.blocking_recv() {
                let mut out = stdout().lock();
                if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
                    break;
                }
            }
            drop(end);
        });
        Self { texts, done }
    }

    /// Prints `text`, waiting until the queue has space.
    pub(crate) async fn print(&self, text: String) -> Result<(), StdoutClosed> {
        self.texts.send(text).await.map_err(|_| StdoutClosed)
    }

    /// Prints `text` unless the queue is full, since the next picture is newer anyway. Returns whether `text` will be
    /// printed.
    pub(crate) fn picture(&self, text: String) -> Result<bool, StdoutClosed> {
        match self.texts.try_send(text) {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(StdoutClosed),
        }
    }

    /// Waits until stdout is closed, which shows at the next write.
    pub(crate) async fn closed(&self) {
        self.texts.closed().await;
    }

    /// Waits until the queue is written, with a time limit for a reader that has stopped.
    pub(crate) async fn finish(self) {
        let Self { texts, done } = self;
        drop(texts);
        drop(timeout(FINISH_TIMEOUT, done).await);
    }
}

/// Prints progress on stderr. A closed stderr is no error.
pub(crate) fn print_progress(text: &str) {
    drop(writeln!(stderr(), "ironmesh demo: {text}"));
}

const MOST_WAITING: usize = 16;
const FINISH_TIMEOUT: Duration = Duration::from_secs(1);
