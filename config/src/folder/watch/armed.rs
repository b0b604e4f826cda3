//! The watches of the system on one layout of the folder. They follow inodes, not paths, so after a
//! swap they are made anew.

use std::path::Path;
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};

use super::alarm::Alarm;
use crate::folder::layout::{Identity, Layout};

/// A layout of the folder, and the watches on it.
pub(super) struct Armed {
    layout: Arc<Layout>,
    /// Held for its drop, which ends the watches.
    _watcher: RecommendedWatcher,
}

impl Armed {
    /// Looks at `path` and watches what it finds.
    pub(super) fn new(path: &Path, alarm: &Arc<Alarm>) -> notify::Result<Self> {
        let layout = Layout::of(path);
        Ok(Self::watch(layout, alarm)?.renew(path, alarm))
    }

    /// Which folder there was at the last look.
    pub(super) fn identity(&self) -> Option<&Identity> {
        self.layout.identity.as_ref()
    }

    /// Looks again, and renews the watches until they fit what there is.
    pub(super) fn renew(mut self, path: &Path, alarm: &Arc<Alarm>) -> Self {
        // What changes between a look and the watches is found by the next look. A folder that
        // changes all the time makes events, so it is looked at again anyway.
        for _ in 0..MOST_LOOKS {
            let layout = Layout::of(path);
            if layout == *self.layout {
                break;
            }
            // Each directory is watched by itself: a recursive watch of notify's misses what is made
            // in a new directory before it is watched too.
            match Self::watch(layout, alarm) {
                // The old watches end only now, so that there is no gap.
                Ok(armed) => self = armed,
                Err(error) => {
                    tracing::warn!(%error, "the policy folder is read only now and then");
                    break;
                }
            }
        }
        self
    }

    fn watch(layout: Layout, alarm: &Arc<Alarm>) -> notify::Result<Self> {
        let layout = Arc::new(layout);
        let (concerned, alarm) = (Arc::clone(&layout), Arc::clone(alarm));
        let mut watcher = notify::recommended_watcher(move |event| alarm.event(event, &concerned))?;
        for directory in layout.watched.keys() {
            let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) else {
                continue;
            };
            // A directory on the way may be closed to us; one of the folder should not be.
            if layout.within.contains(directory) {
                let directory = directory.display();
                tracing::warn!(%error, %directory, "a folder of the policy is not watched");
            }
        }
        Ok(Self { layout, _watcher: watcher })
    }
}

const MOST_LOOKS: usize = 5;
