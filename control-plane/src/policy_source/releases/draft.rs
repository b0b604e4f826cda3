//! A release under construction: its files, each synced to the disk.

use std::collections::BTreeSet;
use std::io::{self, Write as _};
use std::os::unix::fs::DirBuilderExt as _;
use std::path::Path;

use fs_err as fs;
use fs_err::os::unix::fs::OpenOptionsExt as _;
use ironmesh_catalog::PolicyRecord;
use ironmesh_config_language::Document;

use super::RECORD;

/// The most bytes of a name in a folder, on Linux.
const MAX_NAME: usize = 255;

/// The most bytes of a document's path. (Linux allows 4096, with the state folder.)
const MAX_PATH: usize = 2048;

/// Writes the documents and the record of a release to the new folder `path`, and syncs them.
pub(super) fn write(path: &Path, record: &PolicyRecord, documents: &[Document]) -> io::Result<()> {
    create_folder(path)?;
    let mut files = vec![path.join(RECORD)];
    let mut folders = BTreeSet::from([path.to_owned()]);
    create_file(&path.join(RECORD), &encode(record)?)?;
    for document in documents {
        let file = path.join(&*document.path);
        let within: Vec<_> = file.ancestors().skip(1).take_while(|one| *one != path).collect();
        for folder in within.into_iter().rev() {
            if folders.insert(folder.to_owned()) {
                create_folder(folder)?;
            }
        }
        create_file(&file, document.text.as_bytes())?;
        files.push(file);
    }
    // All writes come first, so that the system can write them together.
    files.iter().chain(&folders).try_for_each(|path| sync(path))
}

/// Whether a document of this path can be a file of a release: visible names with one `/` between them.
pub(super) fn is_legal(path: &str) -> bool {
    !path.contains('\0') && path.split('/').all(|name| !name.is_empty() && !name.starts_with('.'))
}

/// Whether a file system may reject this path for its length.
pub(super) fn is_too_long(path: &str) -> bool {
    path.len() > MAX_PATH || path.split('/').any(|name| name.len() > MAX_NAME)
}

/// The text of a record.
pub(super) fn encode(record: &PolicyRecord) -> io::Result<Vec<u8>> {
    Ok(serde_json::to_vec_pretty(record)?)
}

/// Creates a folder, for its owner alone.
pub(super) fn create_folder(path: &Path) -> io::Result<()> {
    let created = std::fs::DirBuilder::new().mode(0o700).create(path);
    created.map_err(|error| {
        io::Error::new(error.kind(), format!("cannot create `{}`: {error}", path.display()))
    })
}

/// Creates a file, for its owner alone.
pub(super) fn create_file(path: &Path, content: &[u8]) -> io::Result<()> {
    let mut file = fs::OpenOptions::new().write(true).create_new(true).mode(0o600).open(path)?;
    file.write_all(content)
}

/// Makes the content of a file, or the names in a folder, durable.
pub(super) fn sync(path: &Path) -> io::Result<()> {
    fs::File::open(path)?.sync_all()
}
