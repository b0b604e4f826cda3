//! The listing of a folder: documents, folders and symbolic links, found without reading a document. Both the
//! reader and the watch use it.

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsStr;
use std::fs::Metadata;
use std::io;
use std::os::unix::fs::MetadataExt;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;

use ironmesh_config_language::YAML_EXTENSIONS;
use ironmesh_config_language::limits::{DOCUMENTS, ENTRIES, FOLDERS};

/// The entries below one folder.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Listing {
    /// The documents: the path relative to the folder, and the file itself.
    pub(super) documents: BTreeMap<PathBuf, DocumentFile>,
    /// Files that are not read because of their extension, relative to the folder. Files that usually lie
    /// beside policy are left out.
    pub(super) ignored: BTreeSet<PathBuf>,
    /// All folders by their resolved paths, each with its identity.
    pub(super) folders: BTreeMap<PathBuf, FileId>,
    /// All symbolic links with an existing target, even hidden ones, by their own paths, each with its
    /// target.
    pub(super) links: BTreeMap<PathBuf, PathBuf>,
    /// The resolved paths of documents that are links, where edits happen.
    pub(super) targets: BTreeSet<PathBuf>,
    /// Symbolic links that lead out of the folder, relative to it. The reader never opens their targets.
    pub(super) outside: BTreeSet<PathBuf>,
    /// Entries that could not be read, relative to the folder, with the reasons.
    pub(super) problems: BTreeMap<PathBuf, String>,
    /// The limit that was exceeded: the listing stops there.
    pub(super) is_too_large: Option<(usize, &'static str)>,
    /// The folder itself, with all links resolved.
    pub(super) root: PathBuf,
    /// The number of entries read.
    entries: usize,
    /// The number of folders read. (A few folders may count as many, since links lead from each to others.)
    visits: usize,
}

/// Distinguishes a file from a different file at the same path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct FileId {
    device: u64,
    inode: u64,
}

impl FileId {
    /// The identity of the file at `path`; links are followed.
    pub(super) fn of(path: &Path) -> io::Result<Self> {
        let metadata = fs::metadata(path)?;
        Ok(Self { device: metadata.dev(), inode: metadata.ino() })
    }
}

/// The file of a document, and the facts that change with its content.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct DocumentFile {
    /// The path, with all links resolved.
    pub(super) path: PathBuf,
    pub(super) stamp: Stamp,
}

/// Distinguishes a file in one state of its content from others.
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

/// The most depth of folders.
const MOST_DEPTH: usize = 32;

impl Listing {
    /// Lists the entries below `folder`, a path without links.
    pub(super) fn of(folder: &Path) -> io::Result<Self> {
        let mut listing = Self { root: folder.to_owned(), ..Self::default() };
        // The first folder must be readable; an unreadable one below it is a problem.
        fs::read_dir(folder)?;
        listing.folder(Path::new(""), folder, &mut Vec::new());
        Ok(listing)
    }

    /// Lists `folder`, which is `relative` to the first. `above` are its ancestors.
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
        // A link without a target is ignored: Emacs keeps its locks as such links.
        if own.is_symlink()
            && fs::metadata(path).is_ok()
            && let Ok(target) = fs::read_link(path)
        {
            self.links.insert(path.to_owned(), target);
        }
        // Hidden entries belong to tools (`.git`, Kubernetes' `..data`, editors' locks). They count if a link
        // that is not hidden leads to them.
        if name.as_encoded_bytes().starts_with(b".") {
            return;
        }
        let is_document = is_document(Path::new(name));
        let is_symlink = own.is_symlink();
        if is_symlink && self.leads_outside(path) {
            // A file outside of the folder may be secret: of a link that is no policy, only the type of its
            // target is checked.
            if is_document || fs::metadata(path).is_ok_and(|end| end.is_dir()) {
                self.outside.insert(relative.to_owned());
            }
            return;
        }
        let end = if is_symlink {
            fs::metadata(path).and_then(|end| Ok((end, fs::canonicalize(path)?)))
        } else {
            // The path to the folder has no links.
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
            // A link without a target is a problem; a file that was removed since it was listed is none.
            Err(error) if is_document => {
                self.problems.insert(relative.to_owned(), reason(&error));
            }
            Ok(_) | Err(_) => {}
        }
    }
}

impl Listing {
    /// Whether the symbolic link at `path` leads out of the folder. For a link without a target, the path
    /// that it names decides, so that the answer does not reveal which files exist.
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

/// Whether a file is policy, by its extension.
pub(super) fn is_document(path: &Path) -> bool {
    let is_known = |end: &OsStr| end == "toml" || YAML_EXTENSIONS.iter().any(|known| end == *known);
    path.extension().is_some_and(is_known)
}

/// Name endings of files that lie beside policy and are no policy: texts for people, and files that editors
/// and patches leave behind.
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

/// The reason of an error, without the path, which the finding has.
pub(super) fn reason(error: &io::Error) -> String {
    match error.kind() {
        io::ErrorKind::NotFound => "it is a symbolic link to nothing".to_owned(),
        io::ErrorKind::PermissionDenied => "this user may not read it".to_owned(),
        kind => kind.to_string(),
    }
}
