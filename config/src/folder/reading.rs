//! Reads all documents of a folder, as they were at one moment.

use std::io::Read;
use std::path::Path;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use ironmesh_catalog::{Finding, Spot};

use super::listing::{Listing, is_document, reason};
use super::{Folder, FolderError};
use crate::codes;
use crate::document::Document;
use crate::limits::{self, DOCUMENT_BYTES};

/// Reads all `*.toml`, `*.yaml` and `*.yml` files below the folder at `path`, hidden ones left out and
/// symbolic links followed. `path` may be such a file too. A file that cannot be read is a finding; an empty
/// folder is legal.
pub fn read_folder(path: &Path) -> Result<Folder, FolderError> {
    let error = |source| FolderError::new(path, source);
    // Links are resolved once: were they followed for each file, a swap half-way would give a
    // mixture of two policies.
    let resolved = fs::canonicalize(path).map_err(error)?;
    if fs::metadata(&resolved).map_err(error)?.is_file() {
        return read_file(path, &resolved);
    }
    for _ in 1..MOST_ATTEMPTS {
        let listing = list(path, &resolved)?;
        let folder = read_listing(&listing);
        // Links inside the folder may be swapped while it is read. Then it is read again.
        if listing.is_too_large.is_some() || list(path, &resolved)? == listing {
            return Ok(folder);
        }
    }
    Ok(read_listing(&list(path, &resolved)?))
}

/// How often a folder that changes while it is read is read again.
const MOST_ATTEMPTS: usize = 5;

fn list(path: &Path, resolved: &Path) -> Result<Listing, FolderError> {
    Listing::of(resolved).map_err(|source| FolderError::new(path, source))
}

fn read_file(path: &Path, resolved: &Path) -> Result<Folder, FolderError> {
    let name = path.file_name().filter(|_| is_document(path));
    let Some(name) = name else {
        return Err(FolderError::NotAFolder { path: path.to_owned() });
    };
    let mut folder = Folder { documents: Vec::new(), findings: Vec::new() };
    folder.add(Path::new(name), read_document(resolved));
    Ok(folder)
}

fn read_listing(listing: &Listing) -> Folder {
    let mut folder = Folder { documents: Vec::new(), findings: Vec::new() };
    if let Some((most, what)) = listing.is_too_large {
        folder.findings.push(limits::too_many(most, what));
        return folder;
    }
    for (relative, problem) in &listing.problems {
        folder.add(relative, Err(problem.clone()));
    }
    let mut bytes = 0;
    for (relative, file) in &listing.documents {
        let text = read_document(file);
        bytes += text.as_ref().map_or(0, String::len);
        folder.add(relative, text);
        if let Some(finding) = limits::excess(folder.documents.len(), bytes) {
            return Folder { documents: Vec::new(), findings: vec![finding] };
        }
    }
    folder.documents.sort();
    folder
}

impl Folder {
    fn add(&mut self, relative: &Path, text: Result<String, String>) {
        let parts: Vec<_> = relative.iter().map(|part| part.to_string_lossy()).collect();
        let path = parts.join("/");
        match text {
            Ok(text) => self.documents.push(Document::new(path, text)),
            Err(problem) => {
                let message = format!("`{path}` cannot be read: {problem}");
                let spot = Spot::new(&path.into(), "", 0..0);
                let finding = Finding::error(codes::UNREADABLE_FILE, Some(spot), message);
                self.findings.push(finding.help("mend it, or take it out of the policy folder"));
            }
        }
    }
}

fn read_document(file: &Path) -> Result<String, String> {
    let of = |error: std::io::Error| match error.kind() {
        std::io::ErrorKind::NotFound => "it was taken away while it was read".to_owned(),
        _ => reason(&error),
    };
    // What a device does when it is opened nobody knows, so that is asked before; and opening a pipe
    // that has come into the place of a file would wait for its writer.
    let is_file = |metadata: std::fs::Metadata| {
        if metadata.is_file() { Ok(()) } else { Err("it is not a regular file".to_owned()) }
    };
    is_file(fs::metadata(file).map_err(of)?)?;
    let without_waiting = rustix::fs::OFlags::NONBLOCK.bits().cast_signed();
    let opened = fs::OpenOptions::new().read(true).custom_flags(without_waiting).open(file);
    let opened = opened.map_err(of)?;
    is_file(opened.metadata().map_err(of)?)?;
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
