//! What is printed on stdout, by a thread of its own.
//!
//! A reader that has stopped reading blocks whoever writes. It must not keep the demo from hearing
//! that it is to end.

use std::io::{Write as _, stdout};
use std::time::Duration;

use tokio::sync::mpsc;
use tokio::time::timeout;

/// Nobody reads stdout any more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct StdoutClosed;

/// The way to stdout.
#[derive(Debug)]
pub(crate) struct Printer(mpsc::Sender<String>);

impl Printer {
    pub(crate) fn start() -> Self {
        let (sender, mut texts) = mpsc::channel::<String>(MOST_WAITING);
        std::thread::spawn(move || {
            while let Some(text) = texts.blocking_recv() {
                let mut out = stdout().lock();
                if out.write_all(text.as_bytes()).and_then(|()| out.flush()).is_err() {
                    return;
                }
            }
        });
        Self(sender)
    }

    /// Prints `text` as it is, waiting for room.
    pub(crate) async fn print(&self, text: String) -> Result<(), StdoutClosed> {
        self.0.send(text).await.map_err(|_| StdoutClosed)
    }

    /// Prints `text`, unless the reader is behind: the next picture is newer anyway.
    pub(crate) fn picture(&self, text: String) -> Result<(), StdoutClosed> {
        match self.0.try_send(text) {
            Err(mpsc::error::TrySendError::Closed(_)) => Err(StdoutClosed),
            _ => Ok(()),
        }
    }

    /// Waits until all is printed, but not for a reader that has stopped.
    pub(crate) async fn finish(self) {
        // All places are free again when nothing waits; the last text is being written then, and
        // the second round waits for that as well.
        let drained = async { drop(self.0.reserve_many(MOST_WAITING).await) };
        drop(timeout(LAST_WORDS, drained).await);
    }
}

const MOST_WAITING: usize = 16;
const LAST_WORDS: Duration = Duration::from_secs(1);
