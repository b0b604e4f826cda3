//! The system's watches on one layout of the folder. They follow inodes, not paths, so they are created again
//! after a swap of a folder.

use std::path::Path;
use std::sync::Arc;

use notify::{RecommendedWatcher, RecursiveMode, Watcher};
use tokio::sync::watch::Sender;

use super::alarm::Alarm;
use crate::folder::layout::{Identity, Layout};

/// A layout of the folder, and the watches on it.
pub(super) struct Armed {
    /// The layout by which events are filtered.
    layout: Sender<Layout>,
    /// Held for its drop, which ends the watches.
    _watcher: RecommendedWatcher,
}

impl Armed {
    /// Reads the layout of `path`, and watches it.
    pub(super) fn new(path: &Path, alarm: &Arc<Alarm>) -> notify::Result<Self> {
        let layout = Layout::of(path);
        Ok(Self::watch(layout, alarm)?.renew(path, alarm))
    }

    /// The identity of the folder at the last read of the layout.
    pub(super) fn identity(&self) -> Option<Identity> {
        self.layout.borrow().identity.clone()
    }

    /// Reads the layout again, and renews the watches until they fit it.
    pub(super) fn renew(mut self, path: &Path, alarm: &Arc<Alarm>) -> Self {
        // The next read of the layout finds a change between a read and the watches. A folder that changes
        // all the time causes events, so it is read again anyway.
        for _ in 0..MOST_LOOKS {
            let layout = Layout::of(path);
            if layout == *self.layout.borrow() {
                break;
            }
            // A link to another file leads to directories that are watched already.
            if layout.watched == self.layout.borrow().watched {
                self.layout.send_replace(layout);
                continue;
            }
            // Each directory has its own watch: a recursive watch of notify misses entries that are created
            // in a new directory before it is watched.
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
        let layout = Sender::new(layout);
        let (concerned, alarm) = (layout.subscribe(), Arc::clone(alarm));
        let mut watcher =
            notify::recommended_watcher(move |event| alarm.event(event, &concerned.borrow()))?;
        for directory in layout.borrow().watched.keys() {
            let Err(error) = watcher.watch(directory, RecursiveMode::NonRecursive) else {
                continue;
            };
            // An ancestor may be unreadable; a directory of the folder should not be.
            if layout.borrow().within.contains(directory) {
                let directory = directory.display();
                tracing::warn!(%error, %directory, "a folder of the policy is not watched");
            }
        }
        Ok(Self { layout, _watcher: watcher })
    }
}

const MOST_LOOKS: usize = 5;

#[cfg(test)]
mod tests {
    use std::os::unix::fs::symlink;

    use fs_err as fs;

    use super::*;

    #[test]
    fn retargeted_link_in_a_watched_directory_adds_no_watches() {
        let root = tempfile::tempdir().unwrap();
        let policy = root.path().join("policy");
        for name in ["policy", "policy/.files", "policy/.elsewhere"] {
            fs::create_dir(root.path().join(name)).unwrap();
        }
        for file in [".files/1.toml", ".files/2.toml", ".elsewhere/3.toml"] {
            fs::write(policy.join(file), "").unwrap();
        }
        let link_to = |file: &str| {
            symlink(policy.join(file), root.path().join("link")).unwrap();
            fs::rename(root.path().join("link"), policy.join("a.toml")).unwrap();
        };
        link_to(".files/1.toml");
        let alarm = Arc::new(Alarm::default());
        let mut armed = Armed::new(&policy, &alarm).unwrap();
        for (file, is_watched) in [(".files/2.toml", true), (".elsewhere/3.toml", false)] {
            link_to(file);
            let kept = armed.layout.subscribe();
            armed = armed.renew(&policy, &alarm);
            // The layout belongs to the watches.
            assert_eq!(kept.has_changed().is_ok(), is_watched, "{file}");
            let end = fs::canonicalize(policy.join(file)).unwrap();
            assert!(armed.layout.borrow().concerns(&end), "{file}");
        }
    }
}
