//! Reads all documents of a folder, as they were at one moment.

use std::io::Read;
use std::path::Path;

use fs_err as fs;
use ironmesh_catalog::{Finding, Spot};

use super::listing::{Listing, MOST_DOCUMENTS, is_document, reason};
use super::{Folder, FolderError};
use crate::codes;
use crate::document::Document;

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
        if list(path, &resolved)? == listing {
            return Ok(folder);
        }
    }
    Ok(read_listing(&list(path, &resolved)?))
}

/// How often a folder that changes while it is read is read again.
const MOST_ATTEMPTS: usize = 5;

/// The largest document, in bytes.
const MOST_BYTES: u64 = 16 * 1024 * 1024;

fn list(path: &Path, resolved: &Path) -> Result<Listing, FolderError> {
    let listing = Listing::of(resolved).map_err(|source| FolderError::new(path, source))?;
    if listing.is_too_large {
        return Err(FolderError::TooLarge { path: path.to_owned(), most: MOST_DOCUMENTS });
    }
    Ok(listing)
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
    for (relative, problem) in &listing.problems {
        folder.add(relative, Err(problem.clone()));
    }
    for (relative, file) in &listing.documents {
        folder.add(relative, read_document(file));
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
    let of = |error: std::io::Error| reason(&error);
    // Opening a pipe would wait for its writer.
    if !fs::metadata(file).map_err(of)?.is_file() {
        return Err("it is not a regular file".to_owned());
    }
    let mut bytes = Vec::new();
    let mut reader = fs::File::open(file).map_err(of)?.take(MOST_BYTES + 1);
    reader.read_to_end(&mut bytes).map_err(of)?;
    if u64::try_from(bytes.len()).is_ok_and(|length| length > MOST_BYTES) {
        return Err("it is larger than 16 MiB".to_owned());
    }
    String::from_utf8(bytes).map_err(|error| {
        let at = error.utf8_error().valid_up_to();
        format!("it is not UTF-8 from byte {at} on")
    })
}
