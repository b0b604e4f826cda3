//! How a policy folder lies in the file system: on which way its path leads there, and which
//! directories must be watched to notice that anything of it changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::listing::{FileId, Listing};

/// One look at a policy folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// Which folder it is; `None` if there is none.
    pub(super) identity: Option<Identity>,
    /// The directories to watch.
    pub(super) watched: BTreeMap<PathBuf, FileId>,
    /// Directories in which everything matters.
    pub(super) within: BTreeSet<PathBuf>,
    /// Single paths that matter, in directories that are full of other things.
    pub(super) exact: BTreeSet<PathBuf>,
}

/// Tells a policy folder from another that has taken its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// Where the path leads in the end.
    pub(super) resolved: PathBuf,
    /// What is there.
    pub(super) id: FileId,
    /// Whether a symbolic link is on the way.
    pub(super) is_linked: bool,
    /// The symbolic links below the folder, and where they point.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
}

impl Layout {
    /// Looks at `path`. What cannot be looked at is left out: the watch reads again now and then.
    pub(super) fn of(path: &Path) -> Self {
        let trace = PathTrace::of(path);
        let mut layout = Self { exact: trace.entries, ..Self::default() };
        let mut watched: BTreeSet<PathBuf> = trace.directories;
        if let Some(resolved) = trace.end
            && let Ok(id) = FileId::of(&resolved)
        {
            // Of a single file, there is nothing to list.
            let listing = Listing::of(&resolved).unwrap_or_default();
            watched.extend(listing.folders.keys().cloned());
            watched
                .extend(listing.targets.iter().filter_map(|file| Some(file.parent()?.to_owned())));
            layout.exact.extend(listing.targets);
            layout.within = listing.folders.into_keys().collect();
            let links = listing.links;
            layout.identity = Some(Identity { resolved, id, is_linked: trace.is_linked, links });
        }
        let known = |directory: PathBuf| Some((FileId::of(&directory).ok()?, directory));
        let watched = watched.into_iter().filter_map(known);
        layout.watched = watched.map(|(id, directory)| (directory, id)).collect();
        layout
    }

    /// Whether something that happened at `path` matters.
    pub(super) fn concerns(&self, path: &Path) -> bool {
        self.exact.contains(path)
            || self.within.contains(path)
            || path.parent().is_some_and(|parent| self.within.contains(parent))
    }
}

/// The way that a path leads, link by link.
#[derive(Debug, Default)]
struct PathTrace {
    /// Every entry on the way, as it is named in its directory.
    entries: BTreeSet<PathBuf>,
    /// The directories that hold them. Where the way ends early, the last is the nearest ancestor
    /// that exists.
    directories: BTreeSet<PathBuf>,
    /// Where it leads, if anywhere.
    end: Option<PathBuf>,
    is_linked: bool,
}

/// As many links as Linux follows.
const MOST_LINKS: usize = 40;

impl PathTrace {
    fn of(path: &Path) -> Self {
        let mut trace = Self::default();
        let Ok(path) = std::path::absolute(path) else { return trace };
        let mut at = PathBuf::new();
        let mut links = 0;
        let mut ahead: Vec<OsString> = parts_reversed(&path);
        while let Some(part) = ahead.pop() {
            if part == ".." {
                at.pop();
                continue;
            }
            let entry = at.join(&part);
            if entry.parent().is_none() {
                at = entry;
                continue;
            }
            trace.directories.insert(at.clone());
            trace.entries.insert(entry.clone());
            let Ok(metadata) = fs::symlink_metadata(&entry) else { return trace };
            if !metadata.is_symlink() {
                at = entry;
                continue;
            }
            trace.is_linked = true;
            links += 1;
            let Ok(target) = fs::read_link(&entry) else { return trace };
            if links > MOST_LINKS {
                return trace;
            }
            ahead.extend(parts_reversed(&target));
        }
        trace.end = Some(at);
        trace
    }
}

/// The parts of a path, the last first; of an absolute one, the root at the end.
fn parts_reversed(path: &Path) -> Vec<OsString> {
    let parts = path.components().map(|part| part.as_os_str().to_owned());
    let mut parts: Vec<OsString> = parts.filter(|part| part != ".").collect();
    parts.reverse();
    parts
}
