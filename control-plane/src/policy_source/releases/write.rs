//! The changes of releases. Each is complete on disk before it takes effect.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::Path;

use fs_err as fs;
use ironmesh_catalog::{PolicyRecord, PolicyRevision};
use ironmesh_config_language::Document;
use ironmesh_config_sources::read_folder;

use super::draft::{self, create_file, create_folder, sync};
use super::{CURRENT, RECORD, ReleaseError, Releases};

/// The most releases that are kept.
pub(super) const MOST_RELEASES: usize = 20;

/// The name of a release that is written.
const DRAFT: &str = ".new";
/// The name of a release that is removed.
const REMOVED: &str = ".old";
/// The name of a link that becomes the current one.
const LINK: &str = ".current";

impl Releases {
    /// Rejects documents that cannot be the files of a folder: a request may name any path.
    pub(in super::super) fn check_paths(documents: &[Document]) -> Result<(), ReleaseError> {
        let mut seen = BTreeSet::new();
        for Document { path, .. } in documents {
            if !draft::is_legal(path) {
                let words = format!("`{path}` is not the path of a document below a policy folder");
                return Err(ReleaseError::Rejected(words));
            }
            if !seen.insert(path) {
                return Err(ReleaseError::Rejected(format!("there are two documents `{path}`")));
            }
        }
        Ok(())
    }

    /// Makes a release of sorted documents, and makes it the current one. If this fails, the current one stays.
    pub(in super::super) fn publish(
        &self,
        record: &PolicyRecord,
        documents: &[Document],
    ) -> Result<(), ReleaseError> {
        let unwritable = |source| self.unwritable(&record.revision, source);
        let draft = self.folder.join(DRAFT);
        let result = self
            .write_draft(&draft, record, documents)
            .map_err(unwritable)
            .and_then(|()| check_draft(&draft, documents))
            .and_then(|()| self.place(&draft, &record.revision).map_err(unwritable));
        if result.is_err() {
            // The cause is the result; a draft that stays is removed before the next one.
            drop(remove(&draft));
            return result;
        }
        self.select(&record.revision)
    }

    /// Makes a release the current one. If this fails, the current one stays.
    pub(in super::super) fn select(&self, revision: &PolicyRevision) -> Result<(), ReleaseError> {
        let before = self.current().ok().flatten();
        let selected = self.link(revision).and_then(|()| sync(&self.folder));
        selected.map_err(|source| {
            if let Some(before) = before {
                // The link may have changed without being durable.
                drop(self.link(&before));
            }
            self.unwritable(revision, source)
        })
    }

    /// Replaces the record of a release.
    pub(in super::super) fn put_record(&self, record: &PolicyRecord) -> Result<(), ReleaseError> {
        let folder = self.path_of(&record.revision);
        let draft = folder.join(".release.json.new");
        let put = || {
            remove(&draft)?;
            create_file(&draft, &draft::encode(record)?)?;
            sync(&draft)?;
            fs::rename(&draft, folder.join(RECORD))?;
            sync(&folder)
        };
        put().map_err(|source| self.unwritable(&record.revision, source))
    }

    /// Removes the oldest releases beyond the limit, but not the current one.
    pub(in super::super) fn prune(&self) {
        let pruned = self.records().and_then(|records| {
            let current = self.current()?;
            let kept = |record: &&PolicyRecord| current.as_ref() != Some(&record.revision);
            for PolicyRecord { revision, .. } in records.iter().skip(MOST_RELEASES).filter(kept) {
                self.remove_release(revision).map_err(|e| self.unwritable(revision, e))?;
            }
            Ok(())
        });
        if let Err(error) = pruned {
            let error = ironmesh_catalog::text::chain(&error);
            tracing::warn!(error, "cannot remove old releases");
        }
    }

    fn write_draft(
        &self,
        draft: &Path,
        record: &PolicyRecord,
        documents: &[Document],
    ) -> io::Result<()> {
        if !self.folder.is_dir() {
            // Not the state folder: if that is gone, a new one would hide its loss (IM0702).
            create_folder(&self.folder)?;
            self.folder.parent().map_or(Ok(()), sync)?;
        }
        remove(draft)?;
        draft::write(draft, record, documents)
    }

    /// Gives a finished draft the name of its release, in place of an earlier release of the same revision.
    fn place(&self, draft: &Path, revision: &PolicyRevision) -> io::Result<()> {
        let (path, old) = (self.path_of(revision), self.folder.join(REMOVED));
        remove(&old)?;
        let is_replaced = path.exists();
        if is_replaced {
            fs::rename(&path, &old)?;
        }
        fs::rename(draft, &path).inspect_err(|_| {
            if is_replaced {
                drop(fs::rename(&old, &path));
            }
        })?;
        sync(&self.folder)?;
        // The next change removes what is left.
        drop(remove(&old));
        Ok(())
    }

    /// A release is renamed before it is removed, so that a part of it never looks like a release.
    fn remove_release(&self, revision: &PolicyRevision) -> io::Result<()> {
        let old = self.folder.join(REMOVED);
        remove(&old)?;
        fs::rename(self.path_of(revision), &old)?;
        remove(&old)
    }

    fn link(&self, revision: &PolicyRevision) -> io::Result<()> {
        let link = self.folder.join(LINK);
        remove(&link)?;
        fs::os::unix::fs::symlink(&*revision.0, &link)?;
        fs::rename(&link, self.folder.join(CURRENT))
    }

    fn unwritable(&self, revision: &PolicyRevision, source: io::Error) -> ReleaseError {
        let (revision, folder) = (revision.clone(), self.folder.clone());
        ReleaseError::Unwritable { revision, folder, source }
    }
}

/// Checks that the reader of policy folders finds the documents in a draft that were written there.
fn check_draft(draft: &Path, documents: &[Document]) -> Result<(), ReleaseError> {
    let folder = read_folder(draft)?;
    if let Some(finding) = folder.findings.iter().find(|finding| finding.is_error()) {
        return Err(ReleaseError::Rejected(finding.to_string()));
    }
    if folder.documents != documents {
        let words =
            "not all documents have paths that are read as policy (`*.toml`, `*.yaml`, `*.yml`)";
        return Err(ReleaseError::Rejected(words.to_owned()));
    }
    Ok(())
}

/// Removes a file, a link or a folder, if it exists.
fn remove(path: &Path) -> io::Result<()> {
    let removed = match fs::symlink_metadata(path) {
        Ok(metadata) if metadata.is_dir() => fs::remove_dir_all(path),
        Ok(_) => fs::remove_file(path),
        Err(error) => Err(error),
    };
    match removed {
        Err(error) if error.kind() == ErrorKind::NotFound => Ok(()),
        removed => removed,
    }
}
