//! The alarm: it carries events from notify's thread to the watch's task. It holds one bit per kind of event,
//! a bounded set of files that are being written, and no queue, so that nothing can fill up.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use parking_lot::Mutex;
use tokio::sync::Notify;

use crate::folder::layout::Layout;
use crate::folder::listing::is_document;

/// Whether any event happened, and whether any was a rename.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    happened: Notify,
    renamed: AtomicBool,
    /// Files that were written to and are not closed yet, so that more writes may follow.
    open_for_writing: Mutex<BTreeSet<PathBuf>>,
}

/// The most open files that are remembered; others count as closed.
const MOST_OPEN: usize = 1_000;

impl Alarm {
    /// Waits until an event has happened since the last call.
    pub(super) async fn raised(&self) {
        self.happened.notified().await;
    }

    /// Whether any event since the last call was a rename.
    pub(super) fn take_renamed(&self) -> bool {
        self.renamed.swap(false, Ordering::SeqCst)
    }

    /// Whether a program has written to a file of the folder and has not closed it yet.
    pub(super) fn has_open_writer(&self) -> bool {
        !self.open_for_writing.lock().is_empty()
    }

    /// Treats all files as closed: their writers take too long, or their close events were missed.
    pub(super) fn forget_writers(&self) {
        self.open_for_writing.lock().clear();
    }

    /// Remembers the files that are being written. A created file without a write has no content to wait for,
    /// and a file that is not read may stay open for ever.
    fn follow_writers(&self, event: &notify::Event, layout: &Layout) {
        let mut open = self.open_for_writing.lock();
        let is_read = |path: &&PathBuf| is_document(path) || layout.exact.contains(*path);
        for path in event.paths.iter().filter(is_read) {
            match event.kind {
                EventKind::Modify(ModifyKind::Data(_)) if open.len() < MOST_OPEN => {
                    open.insert(path.clone());
                }
                EventKind::Access(AccessKind::Close(AccessMode::Write))
                | EventKind::Remove(_)
                | EventKind::Modify(ModifyKind::Name(_)) => {
                    open.remove(path);
                }
                _ => {}
            }
        }
    }

    /// Records an event, if it is relevant to `layout`.
    pub(super) fn event(&self, event: notify::Result<notify::Event>, layout: &Layout) {
        match event {
            Ok(event) if !is_change(event.kind) => return,
            Ok(event) => {
                let concerns = event.paths.iter().any(|path| layout.concerns(path));
                if !concerns && !event.need_rescan() {
                    return;
                }
                self.follow_writers(&event, layout);
                if let EventKind::Modify(ModifyKind::Name(_)) = event.kind {
                    self.renamed.store(true, Ordering::SeqCst);
                }
            }
            // Events were lost: read the folder again.
            Err(error) => tracing::debug!(%error, "an event of the policy folder was lost"),
        }
        self.happened.notify_one();
    }
}

/// Whether an event is a change. The reader itself causes events, which must not trigger another read.
fn is_change(kind: EventKind) -> bool {
    match kind {
        EventKind::Access(access) => access == AccessKind::Close(AccessMode::Write),
        EventKind::Any
        | EventKind::Create(_)
        | EventKind::Modify(_)
        | EventKind::Remove(_)
        | EventKind::Other => true,
    }
}
