//! The layout of a policy folder in the file system: the path components that lead to it, and the directories
//! to watch for changes.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use fs_err as fs;

use super::listing::{FileId, Listing};

/// A policy folder as it was at one time.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Layout {
    /// The identity of the folder; `None` if there is none.
    pub(super) identity: Option<Identity>,
    /// The directories to watch.
    pub(super) watched: BTreeMap<PathBuf, FileId>,
    /// Directories in which every entry is relevant.
    pub(super) within: BTreeSet<PathBuf>,
    /// Single relevant paths, in directories that are full of other files.
    pub(super) exact: BTreeSet<PathBuf>,
}

/// Distinguishes a policy folder from a different folder at the same path.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Identity {
    /// The path with all links resolved.
    pub(super) resolved: PathBuf,
    /// The identity of the folder at that path.
    pub(super) id: FileId,
    /// Whether a component of the path is a symbolic link.
    pub(super) is_linked: bool,
    /// The symbolic links below the folder, and their targets.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
}

impl Layout {
    /// Reads the layout of `path`. Unreadable parts are left out, since the watch reads again periodically.
    pub(super) fn of(path: &Path) -> Self {
        let trace = PathTrace::of(path);
        let mut layout = Self { exact: trace.entries, ..Self::default() };
        let mut watched: BTreeSet<PathBuf> = trace.directories;
        if let Some(resolved) = trace.end
            && let Ok(id) = FileId::of(&resolved)
        {
            // A single file has no entries to list.
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

    /// Whether an event at `path` is relevant.
    pub(super) fn concerns(&self, path: &Path) -> bool {
        self.exact.contains(path)
            || self.within.contains(path)
            || path.parent().is_some_and(|parent| self.within.contains(parent))
    }
}

/// The trace of a path, link by link.
#[derive(Debug, Default)]
struct PathTrace {
    /// Every entry on the path, as it is named in its directory.
    entries: BTreeSet<PathBuf>,
    /// The directories with these entries. If the path ends early, the last is the nearest existing ancestor.
    directories: BTreeSet<PathBuf>,
    /// The resolved path, if it exists.
    end: Option<PathBuf>,
    is_linked: bool,
}

/// The most links that Linux follows.
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

/// The components of a path, the last first; the root of an absolute path is at the end.
fn parts_reversed(path: &Path) -> Vec<OsString> {
    let parts = path.components().map(|part| part.as_os_str().to_owned());
    let mut parts: Vec<OsString> = parts.filter(|part| part != ".").collect();
    parts.reverse();
    parts
}
