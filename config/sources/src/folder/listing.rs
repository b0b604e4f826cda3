//! What is below a folder: documents, folders and symbolic links, found without reading a document.
//! Both the reader and the watch look through this.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;

use ironmesh_config_language::YAML_EXTENSIONS;
use ironmesh_config_language::limits::{DOCUMENTS, ENTRIES, FOLDERS};

/// What is below one folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// The documents: the path relative to the folder, and the file itself.
    pub(super) documents: BTreeMap<PathBuf, DocumentFile>,
    /// Files that are not read, relative to the folder, because their names do not end as those of policy do.
    /// Files that usually lie beside policy are left out.
    pub(super) ignored: BTreeSet<PathBuf>,
    /// All folders, all links resolved, with what tells each from another of the same path.
    pub(super) folders: BTreeMap<PathBuf, FileId>,
    /// All symbolic links that lead somewhere, hidden ones too, by their own paths, and where each points.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
    /// Where documents that are links are in the end; edits happen there.
    pub(super) targets: BTreeSet<PathBuf>,
    /// Symbolic links that lead out of the folder, relative to it. Nothing behind them is looked at.
    pub(super) outside: BTreeSet<PathBuf>,
    /// What could not be looked at, relative to the folder, and why.
    pub(super) problems: BTreeMap<PathBuf, String>,
    /// Of what there is more than is listed: the listing stops there.
    pub(super) is_too_large: Option<(usize, &'static str)>,
    /// The folder itself, all links resolved.
    pub(super) root: PathBuf,
    /// How much was looked at.
    entries: usize,
    /// How many folders were looked into. (Few folders may be many: links lead from each of them to others.)
    visits: usize,
}

/// Tells a file from another that takes its path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The identity of what is at `path`, links followed.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The file of a document, and what changes with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocumentFile {
    /// Where it is, all links resolved.
    pub(super) path: PathBuf,
    pub(super) stamp: Stamp,
}

/// Tells a file, and one state of its content, from another.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Stamp {
    pub(super) id: FileId,
    length: u64,
    /// Seconds and nanoseconds.
    modified: (i64, i64),
}

impl Stamp {
    pub(super) fn of(metadata: &Metadata) -> Self {
        Self {
            id: FileId { device: metadata.dev(), inode: metadata.ino() },
            length: metadata.len(),
            modified: (metadata.mtime(), metadata.mtime_nsec()),
        }
    }
}

/// How deep folders are looked into.
const MOST_DEPTH: usize = 32;

impl Listing {
    /// Lists what is below `folder`, a path without links.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let mut listing = Self { root: folder.to_owned(), ..Self::default() };
        // The first folder must be readable; of those below it, what cannot be read is a problem.
        fs::read_dir(folder)?;
        listing.folder(Path::new(""), folder, &mut Vec::new());
        Ok(listing)
    }

    /// Lists `folder`, which is `relative` to the first. `above` are the folders on the way.
    fn folder(&mut self, relative: &Path, folder: &Path, above: &mut Vec<PathBuf>) {
        let problem = if above.iter().any(|other| other == folder) {
            Some("a symbolic link leads back to a folder above it".to_owned())
        } else if above.len() >= MOST_DEPTH {
            Some(format!("folders are nested more than {MOST_DEPTH} deep"))
        } else {
            None
        };
        if let Some(problem) = problem {
            self.problems.insert(relative.to_owned(), problem);
            return;
        }
        let entries = FileId::of(folder).and_then(|id| {
            self.folders.insert(folder.to_owned(), id);
            fs::read_dir(folder)?.collect::<Result<Vec<_>, _>>()
        });
        let mut entries = match entries {
            Ok(entries) => entries,
            Err(error) => {
                self.problems.insert(relative.to_owned(), reason(&error));
                return;
            }
        };
        self.visits += 1;
        entries.sort_by_key(fs::DirEntry::file_name);
        above.push(folder.to_owned());
        for entry in entries {
            if self.entries >= ENTRIES {
                self.is_too_large = Some((ENTRIES, "files"));
            } else if self.documents.len() > DOCUMENTS {
                self.is_too_large = Some((DOCUMENTS, "documents"));
            } else if self.visits > FOLDERS {
                self.is_too_large = Some((FOLDERS, "folders"));
            }
            if self.is_too_large.is_some() {
                break;
            }
            self.entries += 1;
            let name = entry.file_name();
            self.entry(&relative.join(&name), &entry.path(), &name, above);
        }
        above.pop();
    }

    fn entry(&mut self, relative: &Path, path: &Path, name: &OsStr, above: &mut Vec<PathBuf>) {
        let Ok(own) = fs::symlink_metadata(path) else { return };
        // A link to nowhere is none: Emacs keeps its locks as such.
        if own.is_symlink()
            && fs::metadata(path).is_ok()
            && let Ok(target) = fs::read_link(path)
        {
            self.links.insert(path.to_owned(), target);
        }
        // Hidden entries are the business of tools (`.git`, Kubernetes' `..data`, editors' locks).
        // They count when a link that is not hidden leads to them.
        if name.as_encoded_bytes().starts_with(b".") {
            return;
        }
        let is_document = is_document(Path::new(name));
        let is_symlink = own.is_symlink();
        if is_symlink && self.leads_outside(path) {
            // What lies outside may be a secret: of a link that is no policy it is only asked whether it is a folder.
            if is_document || fs::metadata(path).is_ok_and(|end| end.is_dir()) {
                self.outside.insert(relative.to_owned());
            }
            return;
        }
        let end = if is_symlink {
            fs::metadata(path).and_then(|end| Ok((end, fs::canonicalize(path)?)))
        } else {
            // The way to the folder has no links.
            Ok((own, path.to_owned()))
        };
        match end {
            Ok((end, resolved)) if end.is_dir() => self.folder(relative, &resolved, above),
            Ok((end, resolved)) if is_document => {
                if is_symlink {
                    self.targets.insert(resolved.clone());
                }
                let stamp = Stamp::of(&end);
                self.documents.insert(relative.to_owned(), DocumentFile { path: resolved, stamp });
            }
            Ok((end, _)) if end.is_file() && !is_companion(Path::new(name)) => {
                self.ignored.insert(relative.to_owned());
            }
            // A link to nowhere is a problem; a file that is gone since it was listed is none.
            Err(error) if is_document => {
                self.problems.insert(relative.to_owned(), reason(&error));
            }
            Ok(_) | Err(_) => {}
        }
    }
}

impl Listing {
    /// Whether the symbolic link at `path` leads out of the folder. Of a link to nothing, the path that it names
    /// decides, so that nobody learns what is there and what is not.
    fn leads_outside(&self, path: &Path) -> bool {
        if let Ok(end) = fs::canonicalize(path) {
            return !end.starts_with(&self.root);
        }
        let Ok(target) = fs::read_link(path) else { return false };
        let mut end = path.parent().unwrap_or(path).to_owned();
        for part in target.components() {
            match part {
                Component::ParentDir => {
                    end.pop();
                }
                Component::RootDir => end = PathBuf::from("/"),
                Component::Normal(name) => end.push(name),
                Component::CurDir | Component::Prefix(_) => {}
            }
        }
        !end.starts_with(&self.root)
    }
}

/// Whether a file is policy, by the end of its name.
pub(super) fn is_document(path: &Path) -> bool {
    let is_known = |end: &OsStr| end == "toml" || YAML_EXTENSIONS.iter().any(|known| end == *known);
    path.extension().is_some_and(is_known)
}

/// Ends of the names of files that lie beside policy and are no policy: texts for people, and what editors and
/// patches leave behind.
const COMPANIONS: [&str; 11] =
    ["md", "txt", "rst", "adoc", "orig", "rej", "bak", "old", "swp", "tmp", "disabled"];

/// Whether a file is one that usually lies beside policy, by its name.
fn is_companion(name: &Path) -> bool {
    let text = name.to_string_lossy();
    let upper = ["README", "LICENSE", "CODEOWNERS", "OWNERS", "Makefile"];
    text.ends_with('~')
        || upper.iter().any(|known| text == *known)
        || name.extension().is_some_and(|end| COMPANIONS.iter().any(|known| end == *known))
}

/// What went wrong, without the path, which the finding has.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is a symbolic link to nothing".to_owned(),
        io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        kind => kind.to_string(),
    }
}
