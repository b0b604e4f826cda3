//! Where policy comes from: when there is something to read, and what is read then. What it means is not
//! known here.

use std::path::{Path, PathBuf};
use std::time::Duration;

use ironmesh_catalog::{Finding, PolicyRecord};
use ironmesh_config_language::Document;
use ironmesh_config_sources::{
    EtcdFollower, EtcdPolicy, FolderWatch, Pushed, read_folder, watch_folder,
};
use tokio::time::sleep;

use ironmesh_catalog::text::chain;

/// How often the folder is read where the system does not let it be watched.
const UNWATCHED: Duration = Duration::from_secs(5);

/// Where policy comes from.
#[derive(Debug)]
pub(crate) enum Source {
    Folder(FolderSource),
    Etcd(Box<EtcdFollower>),
}

/// What a source holds at one moment.
#[derive(Debug, Default)]
pub(super) struct Reading {
    pub(super) documents: Vec<Document>,
    /// What of it could not be read.
    pub(super) findings: Vec<Finding>,
    /// Who put it there, where the source knows.
    pub(super) pushed: Option<PolicyRecord>,
}

impl Source {
    pub(crate) fn folder(path: PathBuf) -> Self {
        Self::Folder(FolderSource { path, watching: Watching::NotYet, is_due: true })
    }

    pub(crate) fn etcd(policy: EtcdPolicy) -> Self {
        Self::Etcd(Box::new(policy.follow()))
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        match self {
            Self::Folder(folder) => folder.path.display().to_string(),
            Self::Etcd(follower) => follower.name(),
        }
    }

    /// The folder, if it is one.
    pub(super) fn path(&self) -> Option<&Path> {
        match self {
            Self::Folder(folder) => Some(&folder.path),
            Self::Etcd(_) => None,
        }
    }

    /// What the source holds, when it may be something else than the last time; or why it cannot be read.
    /// May be cancelled without losing a change.
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
        }
    }
}

/// A policy folder.
#[derive(Debug)]
pub(crate) struct FolderSource {
    path: PathBuf,
    watching: Watching,
    /// Whether it is to be read, and has not been since.
    is_due: bool,
}

/// How it is learned that the folder changes.
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
                // Read once more after the watch began: nothing is missed in between.
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
                tracing::warn!(error = chain(error), "reading the policy every 5 s");
            })
            .map_or(Self::Never, Self::By)
    }
}
