//! Where policy comes from: when there is something to read, and what is read then. What it means is not
//! known here.

use std::path::PathBuf;

use ironmesh_config::{Folder, FolderWatch, read_folder, watch_folder};
use tokio::time::{Duration, sleep};

use crate::exit::chain;

/// How often the folder is read where the system does not let it be watched.
const UNWATCHED: Duration = Duration::from_secs(5);

/// Where policy comes from.
#[derive(Debug)]
pub(crate) struct Source {
    folder: PathBuf,
    watching: Watching,
    /// Whether the folder is to be read, and has not been since.
    is_due: bool,
}

/// How it is learned that the folder changes.
#[derive(Debug)]
enum Watching {
    NotYet,
    By(FolderWatch),
    Never,
}

impl Source {
    pub(crate) fn folder(folder: PathBuf) -> Self {
        Self { folder, watching: Watching::NotYet, is_due: true }
    }

    /// For people.
    pub(super) fn name(&self) -> String {
        self.folder.display().to_string()
    }

    /// What the source holds, when it may be something else than the last time; or why it cannot be read.
    /// May be cancelled without losing a change.
    pub(super) async fn next(&mut self) -> Result<Folder, String> {
        if !self.is_due {
            match &mut self.watching {
                // Read once more after the watch began: nothing is missed in between.
                Watching::NotYet => self.watching = Watching::begin(self.folder.clone()),
                Watching::By(watch) => watch.changed().await,
                Watching::Never => sleep(UNWATCHED).await,
            }
            self.is_due = true;
        }
        let folder = self.folder.clone();
        let read = tokio::task::spawn_blocking(move || read_folder(&folder)).await;
        self.is_due = false;
        read.map_err(|error| chain(&error))?.map_err(|error| chain(&error))
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
