//! Policy sources: wait for a change, then read all documents. They never interpret policy.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ironmesh_catalog::{Finding, PolicyRecord};
use ironmesh_config_language::Document;
use ironmesh_config_sources::{
    EtcdFollower, EtcdPolicy, FolderWatch, Pushed, read_folder, watch_folder,
};
use tokio::time::{Instant, sleep, sleep_until};

use super::releases::{Release, Releases};
use ironmesh_catalog::text::chain;

/// The interval of readings if the folder cannot be watched.
const UNWATCHED: Duration = Duration::from_secs(5);

/// The interval of readings of a release. Only this process changes it, so they find damage.
const RELEASE_INTERVAL: Duration = Duration::from_secs(30);

/// A source of policy.
#[derive(Debug)]
pub(crate) enum Source {
    Folder(FolderSource),
    Etcd(Box<EtcdFollower>),
    Releases(ReleaseSource),
}

/// The content of a source at one time.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) documents: Vec<Document>,
    /// Findings about what could not be read.
    pub(super) findings: Vec<Finding>,
    /// The record of the push or of the release, if the source has one.
    pub(super) pushed: Option<PolicyRecord>,
}

impl Source {
    pub(crate) fn folder(path: PathBuf) -> Self {
        Self::Folder(FolderSource { path, watching: Watching::NotYet, is_due: true })
    }

    pub(crate) fn etcd(policy: EtcdPolicy) -> Self {
        Self::Etcd(Box::new(policy.follow()))
    }

    pub(crate) fn releases(releases: Releases) -> Self {
        Self::Releases(ReleaseSource { releases, due: None })
    }

    /// The name of the source in messages.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Folder(folder) => folder.path.display().to_string(),
            Self::Etcd(follower) => follower.name(),
            Self::Releases(source) => source.releases.current_path().display().to_string(),
        }
    }

    /// The path of the policy folder, if it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(&folder.path),
            Self::Etcd(_) | Self::Releases(_) => None,
        }
    }

    /// The content of the source when it may have changed, or why it cannot be read. Cancelling the wait loses no
    /// change.
    pub(super) async fn next(&mut self) -> Result<Reading, String> {
        match self {
            Self::Folder(folder) => folder.next().await,
            Self::Etcd(follower) => match follower.next().await {
                Ok(Pushed { record, documents }) => {
                    Ok(Reading { documents, findings: Vec::new(), pushed: Some(record) })
                }
                Err(error) => match error.finding() {
                    Some(finding) => Ok(Reading { findings: vec![finding], ..Reading::default() }),
                    None => Err(chain(&error)),
                },
            },
            Self::Releases(source) => source.next().await,
        }
    }
}

/// The releases in the state folder.
#[derive(Debug)]
pub(crate) struct ReleaseSource {
    pub(super) releases: Releases,
    /// When the next reading is due; none for the first, which is due at once.
    due: Option<Instant>,
}

impl ReleaseSource {
    async fn next(&mut self) -> Result<Reading, String> {
        if let Some(due) = self.due {
            sleep_until(due).await;
        }
        let releases = self.releases.clone();
        let read = tokio::task::spawn_blocking(move || releases.read_current()).await;
        let read = read.map_err(|error| chain(&error)).and_then(|read| read.map_err(|e| chain(&e)));
        let pause = if read.is_ok() { RELEASE_INTERVAL } else { UNWATCHED };
        self.due = Some(Instant::now() + pause);
        let Release { record, documents, findings } = read?;
        Ok(Reading { documents, findings, pushed: Some(record) })
    }
}

/// A policy folder.
#[derive(Debug)]
pub(crate) struct FolderSource {
    path: PathBuf,
    watching: Watching,
    /// Whether a reading is due.
    is_due: bool,
}

/// How changes of the folder are detected.
#[derive(Debug)]
enum Watching {
    NotYet,
    By(FolderWatch),
    Never,
}

impl FolderSource {
    async fn next(&mut self) -> Result<Reading, String> {
        if !self.is_due {
            match &mut self.watching {
                // One more reading after the watch began, so that no change is missed.
                Watching::NotYet => self.watching = Watching::begin(self.path.clone()),
                Watching::By(watch) => watch.changed().await,
                Watching::Never => sleep(UNWATCHED).await,
            }
            self.is_due = true;
        }
        let path = self.path.clone();
        let read = tokio::task::spawn_blocking(move || read_folder(&path)).await;
        self.is_due = false;
        let folder = read.map_err(|error| chain(&error))?.map_err(|error| chain(&error))?;
        Ok(Reading { documents: folder.documents, findings: folder.findings, pushed: None })
    }
}

impl Watching {
    fn begin(folder: PathBuf) -> Self {
        watch_folder(folder)
            .inspect_err(|error| {
                tracing::warn!(
                    error = chain(error),
                    action = "reading it every 5 s",
                    "cannot watch the policy folder"
                );
            })
            .map_or(Self::Never, Self::By)
    }
}
