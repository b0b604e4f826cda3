//! Reads all documents of a folder in one consistent state.

use std::collections::BTreeSet;
use std::io::Read;
use std::path::{Path, PathBuf};
use std::time::Duration;

use fs_err as fs;
use ironmesh_catalog::{Finding, Spot};

use super::beneath::{NotOpened, Root};
use super::listing::{Listing, is_document, reason};
use super::{Folder, FolderError};
use ironmesh_config_language::Document;
use ironmesh_config_language::codes;
use ironmesh_config_language::limits::{self, DOCUMENT_BYTES};

/// Reads all `*.toml`, `*.yaml` and `*.yml` files below the folder at `path`, except for hidden ones. It
/// follows symbolic links as long as they stay below the folder. `path` may also be one such file, or a link
/// to either. An unreadable file is a finding, and so is a folder whose documents are all empty (invariant
/// 1).
///
/// It waits a moment for files that change while they are read.
pub fn read_folder(path: &Path) -> Result<Folder, FolderError> {
    let error = |source| FolderError::new(path, source);
    // Links on the path to the folder are resolved again for each read, and only once: if they were followed
    // for each file, a swap during the read would mix two policies.
    let resolved = fs::canonicalize(path).map_err(error)?;
    if fs::metadata(&resolved).map_err(error)?.is_file() {
        return read_file(path, &resolved);
    }
    let root = Root::open(&resolved).map_err(error)?;
    let mut listing = list(path, &resolved)?;
    for _ in 1..MOST_ATTEMPTS {
        let folder = read_listing(&root, &listing);
        // Links inside the folder may be swapped while it is read, and files may grow. Then it is read again.
        let after = list(path, &resolved)?;
        if listing.is_too_large.is_some() || after == listing {
            return Ok(folder);
        }
        listing = after;
        std::thread::sleep(PAUSE);
    }
    let mut folder = read_listing(&root, &listing);
    folder.withdraw_growing(&listing, &list(path, &resolved)?);
    Ok(folder)
}

/// The most reads of a folder that changes while it is read.
const MOST_ATTEMPTS: usize = 5;

/// The pause before a changed folder is read again.
const PAUSE: Duration = Duration::from_millis(50);

fn list(path: &Path, resolved: &Path) -> Result<Listing, FolderError> {
    Listing::of(resolved).map_err(|source| FolderError::new(path, source))
}

fn read_file(path: &Path, resolved: &Path) -> Result<Folder, FolderError> {
    let name = path.file_name().filter(|_| is_document(path));
    let Some(name) = name else {
        return Err(FolderError::NotAFolder { path: path.to_owned() });
    };
    let mut folder = Folder { documents: Vec::new(), findings: Vec::new() };
    let (Some(above), Some(file)) = (resolved.parent(), resolved.file_name()) else {
        return Err(FolderError::NotAFolder { path: path.to_owned() });
    };
    let root = Root::open(above).map_err(|source| FolderError::new(path, source))?;
    folder.add(Path::new(name), read_document(&root, Path::new(file)));
    folder.findings.extend(nothing(&folder, &BTreeSet::new()));
    Ok(folder)
}

fn read_listing(root: &Root, listing: &Listing) -> Folder {
    let mut folder = Folder { documents: Vec::new(), findings: Vec::new() };
    if let Some((most, what)) = listing.is_too_large {
        folder.findings.push(limits::too_many(most, what));
        return folder;
    }
    for (relative, problem) in &listing.problems {
        folder.add(relative, Err(problem.clone()));
    }
    for relative in &listing.outside {
        folder.findings.push(outside(relative));
    }
    let mut bytes = 0;
    for (relative, file) in &listing.documents {
        let below = file.path.strip_prefix(&listing.root).unwrap_or(&file.path);
        let text = read_document(root, below);
        bytes += text.as_ref().map_or(0, String::len);
        folder.add(relative, text);
        if let Some(finding) = limits::excess(folder.documents.len(), bytes) {
            return Folder { documents: Vec::new(), findings: vec![finding] };
        }
    }
    folder.documents.sort();
    folder.findings.extend(ignored(&listing.ignored));
    folder.findings.extend(nothing(&folder, &listing.ignored));
    folder
}

/// The error of a symbolic link that leads out of the folder. It does not reveal the target's content or
/// existence.
fn outside(relative: &Path) -> Finding {
    let path = document_path(relative);
    let message = format!("`{path}` is a symbolic link that leads out of the policy folder");
    let spot = Spot::new(&path.into(), "", 0..0);
    let finding = Finding::error(codes::LINK_OUTSIDE, Some(spot), message);
    finding.help("nothing behind it is read: put the file into the policy folder, or make the policy folder itself a link")
}

/// The warning about files that are not read, one for all of them.
fn ignored(files: &BTreeSet<PathBuf>) -> Option<Finding> {
    let noun = match files.len() {
        0 => return None,
        1 => "file is",
        _ => "files are",
    };
    let message = format!("{} {noun} not read as policy: {}", files.len(), names(files));
    let help = "rename what is policy so that its name ends with `.toml`, `.yaml` or `.yml`; move everything \
                else, or begin its name with a dot";
    Some(Finding::warning(codes::IGNORED_FILE, None, message).help(help))
}

/// The error of a folder without policy: it has no documents, or only documents of white space, as a failed
/// copy or a full disk leaves them. A document with a comment states that this is intended.
fn nothing(folder: &Folder, ignored: &BTreeSet<PathBuf>) -> Option<Finding> {
    let is_blank = folder.documents.iter().all(|document| document.text.trim().is_empty());
    if !is_blank || folder.findings.iter().any(Finding::is_error) {
        return None;
    }
    let message = match folder.documents.len() {
        0 => "the policy folder holds no policy file".to_owned(),
        1 => "the only policy file is empty".to_owned(),
        several => format!("all {several} policy files are empty"),
    };
    let finding = Finding::error(codes::EMPTY_FOLDER, None, message);
    let intended =
        "if no policy is intended, write a file with a comment that states this, as in `none.toml`";
    Some(finding.help(if ignored.is_empty() {
        format!("is the volume mounted, and the copy complete? {intended}")
    } else {
        format!("policy files end with `.toml`, `.yaml` or `.yml`; {intended}")
    }))
}

/// Some paths as a text.
fn names(paths: &BTreeSet<PathBuf>) -> String {
    let named: Vec<_> =
        paths.iter().take(MOST_NAMED).map(|path| format!("`{}`", path.display())).collect();
    match paths.len() - named.len() {
        0 => named.join(", "),
        more => format!("{} and {more} more", named.join(", ")),
    }
}

/// The most files that a message names.
const MOST_NAMED: usize = 5;

impl Folder {
    /// Withdraws the documents whose files were edited in place since they were listed, since the read may
    /// have returned a part. (A file that was replaced as a whole was complete.)
    pub(super) fn withdraw_growing(&mut self, listing: &Listing, after: &Listing) {
        for (relative, file) in &listing.documents {
            let now = after.documents.get(relative).map(|now| now.stamp);
            if now.is_some_and(|now| now.id == file.stamp.id && now != file.stamp) {
                let path = document_path(relative);
                self.documents.retain(|document| *document.path != *path);
                let message = format!("`{path}` changes while it is read");
                let spot = Spot::new(&path.into(), "", 0..0);
                let finding = Finding::error(codes::CHANGING_FILE, Some(spot), message);
                self.findings.push(finding.help(
                    "it is read again when it has settled; write a new file beside it and rename that",
                ));
            }
        }
    }

    fn add(&mut self, relative: &Path, text: Result<String, String>) {
        let path = document_path(relative);
        match text {
            Ok(text) => self.documents.push(Document::new(path, text)),
            Err(problem) => {
                let message = format!("`{path}` cannot be read: {problem}");
                let spot = Spot::new(&path.into(), "", 0..0);
                let finding = Finding::error(codes::UNREADABLE_FILE, Some(spot), message);
                self.findings.push(finding.help("fix it, or remove it from the policy folder"));
            }
        }
    }
}

/// A path in the form of [`Document::path`].
fn document_path(relative: &Path) -> String {
    let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
    parts.join("/")
}

fn read_document(root: &Root, below: &Path) -> Result<String, String> {
    let of = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "it was removed while it was read".to_owned(),
        _ => reason(&error),
    };
    let opened = root.file(below).map_err(|problem| match problem {
        NotOpened::NotAFile => "it is not a regular file".to_owned(),
        NotOpened::Link => "a link took its place while it was read".to_owned(),
        NotOpened::Io(error) => of(error),
    })?;
    let mut bytes = Vec::new();
    // (It may grow while it is read.)
    let most = u64::try_from(DOCUMENT_BYTES).unwrap_or(u64::MAX);
    opened.take(most + 1).read_to_end(&mut bytes).map_err(of)?;
    if bytes.len() > DOCUMENT_BYTES {
        return Err(format!("it is larger than {} MiB", DOCUMENT_BYTES >> 20));
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is not UTF-8 from byte {at} on")
    })
}
