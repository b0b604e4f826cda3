//! What is printed: results on stdout, by a thread of its own, and what is going on on stderr.
//!
//! A reader that has stopped reading blocks whoever writes. It must not keep the demo from hearing
//! that it is to end.

use std::io::{Write as _, stderr, stdout};
use std::time::Duration;

use tokio::sync::{mpsc, oneshot};
use tokio::time::timeout;

/// Nobody reads stdout any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StdoutClosed;

/// The way to stdout.
#[derive(Debug)]
pub(crate) struct Printer {
    texts: mpsc::Sender<String>,
    /// Ends with the thread.
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

    /// Prints `text` as it is, waiting for room.
    pub(crate) async fn print(&self, text: String) -> Result<(), StdoutClosed> {
        self.texts.send(text).await.map_err(|_| StdoutClosed)
    }

    /// Prints `text`, unless the reader is behind: the next picture is newer anyway. Returns whether
    /// it will be printed.
    pub(crate) fn picture(&self, text: String) -> Result<bool, StdoutClosed> {
        match self.texts.try_send(text) {
            Ok(()) => Ok(true),
            Err(mpsc::error::TrySendError::Full(_)) => Ok(false),
            Err(mpsc::error::TrySendError::Closed(_)) => Err(StdoutClosed),
        }
    }

    /// Waits until nobody reads any more, which shows when something is printed.
    pub(crate) async fn closed(&self) {
        self.texts.closed().await;
    }

    /// Waits until all is printed, but not for a reader that has stopped.
    pub(crate) async fn finish(self) {
        let Self { texts, done } = self;
        drop(texts);
        drop(timeout(LAST_WORDS, done).await);
    }
}

/// Tells people what is going on, on stderr. Nobody may be there to hear it.
pub(crate) fn tell(text: &str) {
    drop(writeln!(stderr(), "ironmesh demo: {text}"));
}

const MOST_WAITING: usize = 16;
const LAST_WORDS: Duration = Duration::from_secs(1);
