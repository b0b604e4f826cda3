//! Carries events from notify's thread to the watch's task. It holds one bit of what happened and no
//! queue, so nothing can fill up.

use std::sync::atomic::{AtomicBool, Ordering};

use notify::event::{AccessKind, AccessMode, EventKind, ModifyKind};
use tokio::sync::Notify;

use crate::folder::layout::Layout;

/// Whether anything happened, and whether anything was renamed.
#[derive(Debug, Default)]
pub(super) struct Alarm {
    happened: Notify,
    renamed: AtomicBool,
}

impl Alarm {
    /// Waits until something has happened since the last time.
    pub(super) async fn raised(&self) {
        self.happened.notified().await;
    }

    /// Whether anything was renamed since the last time.
    pub(super) fn take_renamed(&self) -> bool {
        self.renamed.swap(false, Ordering::SeqCst)
    }

    /// Takes an event, if it concerns `layout`.
    pub(super) fn event(&self, event: notify::Result<notify::Event>, layout: &Layout) {
        match event {
            Ok(event) if !is_change(event.kind) => return,
            Ok(event) => {
                let concerns = event.paths.iter().any(|path| layout.concerns(path));
                if !concerns && !event.need_rescan() {
                    return;
                }
                if let EventKind::Modify(ModifyKind::Name(_)) = event.kind {
                    self.renamed.store(true, Ordering::SeqCst);
                }
            }
            // Something was missed: look.
            Err(error) => tracing::debug!(%error, "an event of the policy folder was lost"),
        }
        self.happened.notify_one();
    }
}

/// Whether an event is a change. Our own reading makes events as well, and must not lead to more.
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
