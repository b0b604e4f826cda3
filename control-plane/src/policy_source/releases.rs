//! Releases: the policies that `ironmesh policy apply` made, each a folder in the state folder
//! (docs/decisions/0059).
//!
//! ```text
//! releases/4be3c1a09f27/…              the documents of a revision, and `.release.json`, its record
//! releases/current -> 4be3c1a09f27     the active release
//! ```
//!
//! Only the task of the policy source writes here. A release appears whole or not at all: it is written under a hidden
//! name, synced, read back and renamed, and `current` is replaced by a rename.

mod draft;
mod error;
mod write;

use std::io::ErrorKind;
use std::path::{Component, Path, PathBuf};

use fs_err as fs;
use ironmesh_catalog::{Finding, PolicyRecord, PolicyRevision};
use ironmesh_config_language::{Document, revision_of};
use ironmesh_config_sources::{Folder, read_folder};

pub(super) use error::ReleaseError;

/// The folder of releases in the state folder.
const FOLDER: &str = "releases";

/// The link to the active release.
const CURRENT: &str = "current";

/// The record in a release. Its name is hidden, so that the reader of policy folders passes it over.
const RECORD: &str = ".release.json";

/// The folder of the active release of a control plane with this state folder.
pub fn current_release(state: &Path) -> PathBuf {
    Releases::of(state).current_path()
}

/// The releases of a control plane.
#[derive(Debug, Clone)]
pub(crate) struct Releases {
    folder: PathBuf,
}

/// The content of a release.
#[derive(Debug)]
pub(super) struct Release {
    pub(super) record: PolicyRecord,
    pub(super) documents: Vec<Document>,
    /// Findings about files that were not read.
    pub(super) findings: Vec<Finding>,
}

impl Releases {
    /// The releases in this state folder.
    pub(crate) fn of(state: &Path) -> Self {
        Self { folder: state.join(FOLDER) }
    }

    /// The path of the active release.
    pub(crate) fn current_path(&self) -> PathBuf {
        self.folder.join(CURRENT)
    }

    /// The active release.
    pub(super) fn read_current(&self) -> Result<Release, ReleaseError> {
        match self.current()? {
            Some(revision) => self.read(&revision),
            None if self.records()?.is_empty() => Err(ReleaseError::Nothing),
            None => Err(ReleaseError::NoCurrent { link: self.current_path() }),
        }
    }

    /// The revision to which `current` leads; none if it does not exist.
    pub(super) fn current(&self) -> Result<Option<PolicyRevision>, ReleaseError> {
        let link = self.current_path();
        let target = match fs::read_link(&link) {
            Ok(target) => target,
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(ReleaseError::Unreadable { path: link, source }),
        };
        let revision = revision_in(&target).filter(|one| self.path_of(one).is_dir());
        revision.map(Some).ok_or(ReleaseError::Dangling { link, target })
    }

    /// The release of this revision. A release whose content is not that of its revision is an error.
    pub(super) fn read(&self, revision: &PolicyRevision) -> Result<Release, ReleaseError> {
        let path = self.path_of(revision);
        let damaged = |problem| ReleaseError::Damaged { path: path.clone(), problem };
        let record = self.record(revision).map_err(&damaged)?;
        let Folder { documents, findings } = read_folder(&path)?;
        if revision_of(&documents) != *revision {
            return Err(damaged("its files are not those that were applied".to_owned()));
        }
        Ok(Release { record, documents, findings })
    }

    /// The documents of the release of this revision.
    pub(crate) fn documents(
        &self,
        revision: &PolicyRevision,
    ) -> Result<Vec<Document>, ReleaseError> {
        Ok(self.read(revision)?.documents)
    }

    /// The records of all releases, the newest first. A release without a legible record is not listed.
    pub(crate) fn records(&self) -> Result<Vec<PolicyRecord>, ReleaseError> {
        let unreadable = |source| ReleaseError::Unreadable { path: self.folder.clone(), source };
        let entries = match fs::read_dir(&self.folder) {
            Err(error) if error.kind() == ErrorKind::NotFound => return Ok(Vec::new()),
            entries => entries.map_err(unreadable)?,
        };
        let mut records = Vec::new();
        for entry in entries {
            let entry = entry.map_err(unreadable)?;
            let is_folder = entry.file_type().is_ok_and(|kind| kind.is_dir());
            let revision = revision_in(Path::new(&entry.file_name())).filter(|_| is_folder);
            records.extend(revision.and_then(|revision| self.record(&revision).ok()));
        }
        records.sort_by_key(|record: &PolicyRecord| std::cmp::Reverse(record.at));
        Ok(records)
    }

    /// The record of a release, or why there is none.
    fn record(&self, revision: &PolicyRevision) -> Result<PolicyRecord, String> {
        let text = fs::read(self.path_of(revision).join(RECORD)).map_err(|e| e.to_string())?;
        let record: PolicyRecord = serde_json::from_slice(&text)
            .map_err(|error| format!("`{RECORD}` is illegible: {error}"))?;
        if record.revision != *revision {
            return Err(format!("`{RECORD}` is about the revision {}", record.revision));
        }
        Ok(record)
    }

    fn path_of(&self, revision: &PolicyRevision) -> PathBuf {
        self.folder.join(&*revision.0)
    }
}

/// The revision that a name of a release stands for; none for any other path.
fn revision_in(name: &Path) -> Option<PolicyRevision> {
    let mut parts = name.components();
    let (Some(Component::Normal(only)), None) = (parts.next(), parts.next()) else { return None };
    let text = only.to_str().filter(|text| !text.starts_with('.') && *text != CURRENT)?;
    Some(PolicyRevision(text.into()))
}

#[cfg(test)]
mod tests;
