//! The changes of releases. Each is complete on disk before it takes effect.

use std::collections::BTreeSet;
use std::io::{self, ErrorKind};
use std::path::{Path, PathBuf};

use fs_err as fs;
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{PolicyRecord, PolicyRevision};
use ironmesh_config_language::Document;
use ironmesh_config_sources::read_folder;
use rustix::fs::{CWD, RenameFlags, renameat_with};
use rustix::io::Errno;

use super::draft::{self, create_file, create_folder, sync};
use super::{CURRENT, RECORD, ReleaseError, Releases};
use crate::journal::line;

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
        let reject = |words: String| Err(ReleaseError::Rejected(words));
        let mut seen = BTreeSet::new();
        for Document { path, .. } in documents {
            if draft::is_too_long(path) {
                return reject(format!("the path `{}` is too long", line(path)));
            }
            if !draft::is_legal(path) {
                return reject(format!(
                    "`{path}` is not the path of a document below a policy folder"
                ));
            }
            if !seen.insert(Path::new(&**path)) {
                return reject(format!("there are two documents `{path}`"));
            }
        }
        let mut folders = seen.iter().flat_map(|path| path.ancestors().skip(1));
        if let Some(clash) = folders.find(|folder| seen.contains(folder)) {
            return reject(format!("`{}` is a document and a folder", clash.display()));
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
        self.select_with(revision, sync)
    }

    /// As [`Self::select`], with this way to make the names in the folder durable.
    pub(super) fn select_with(
        &self,
        revision: &PolicyRevision,
        sync: impl FnOnce(&Path) -> io::Result<()>,
    ) -> Result<(), ReleaseError> {
        let before = fs::read_link(self.current_path()).ok();
        let unwritable = |source| self.unwritable(revision, source);
        self.link(Path::new(&*revision.0)).map_err(unwritable)?;
        sync(&self.folder).map_err(|source| {
            self.restore_link(before);
            unwritable(source)
        })
    }

    /// Undoes a change of `current` that may not be durable.
    fn restore_link(&self, before: Option<PathBuf>) {
        let restored = match before {
            Some(target) => self.link(&target),
            None => remove(&self.current_path()),
        };
        if let Err(error) = restored {
            tracing::error!(
                link = %self.current_path().display(),
                error = chain(&error),
                action = "apply policy again, or select a release with `ironmesh policy rollback`",
                "cannot restore the link to the current release"
            );
        }
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

    /// Removes the oldest releases beyond the limit, but neither the current one nor the one `before` it: their times
    /// may be wrong, and a rollback needs the latter.
    pub(in super::super) fn prune(&self, before: Option<&PolicyRevision>) {
        let pruned = self.records().and_then(|records| {
            let current = self.current()?;
            let is_surplus = |record: &&PolicyRecord| {
                let revision = Some(&record.revision);
                current.as_ref() != revision && before != revision
            };
            let surplus = records.iter().skip(MOST_RELEASES).filter(is_surplus);
            for PolicyRecord { revision, .. } in surplus {
                self.remove_release(revision).map_err(|e| self.unwritable(revision, e))?;
            }
            Ok(())
        });
        if let Err(error) = pruned {
            tracing::warn!(error = chain(&error), "cannot remove old releases");
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
        let path = self.path_of(revision);
        if path.exists() {
            // In one step: the release may be the current one, and a crash must not leave it without a name.
            match renameat_with(CWD, draft, CWD, &path, RenameFlags::EXCHANGE) {
                Err(Errno::INVAL | Errno::NOSYS) => self.place_in_two_steps(draft, &path)?,
                exchanged => exchanged?,
            }
        } else {
            fs::rename(draft, &path)?;
        }
        sync(&self.folder)?;
        // The earlier release has one of these names now. The next change removes what is left.
        drop(remove(draft));
        drop(remove(&self.folder.join(REMOVED)));
        Ok(())
    }

    /// Replaces a release on a file system that cannot exchange names.
    pub(super) fn place_in_two_steps(&self, draft: &Path, path: &Path) -> io::Result<()> {
        let old = self.folder.join(REMOVED);
        remove(&old)?;
        fs::rename(path, &old)?;
        fs::rename(draft, path).inspect_err(|_| drop(fs::rename(&old, path)))
    }

    /// A release is renamed before it is removed, so that a part of it never looks like a release.
    fn remove_release(&self, revision: &PolicyRevision) -> io::Result<()> {
        let old = self.folder.join(REMOVED);
        remove(&old)?;
        fs::rename(self.path_of(revision), &old)?;
        remove(&old)
    }

    /// Replaces `current` by a link to this target. If this fails, it stays.
    fn link(&self, target: &Path) -> io::Result<()> {
        let link = self.folder.join(LINK);
        remove(&link)?;
        fs::os::unix::fs::symlink(target, &link)?;
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
