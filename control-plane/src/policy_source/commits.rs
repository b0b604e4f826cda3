//! Finds out which commit the policy folder is, beside everything else: git takes its time, and nothing
//! waits for it.

use std::path::{Path, PathBuf};

use ironmesh_catalog::PolicyRevision;
use ironmesh_config_sources::commit_of;
use tokio_util::task::AbortOnDropHandle;

use ironmesh_catalog::text::chain;

/// What a search comes to: the commit of a revision, if it has one.
type Searched = (PolicyRevision, Result<Option<String>, String>);

#[derive(Debug)]
pub(super) struct Commits {
    /// The policy folder; none where policy comes from elsewhere.
    folder: Option<PathBuf>,
    /// The search that is under way.
    search: Option<AbortOnDropHandle<Searched>>,
    /// What was wrong the last time, which was said then.
    problem: Option<String>,
}

impl Commits {
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Self { folder: folder.map(Path::to_owned), search: None, problem: None }
    }

    /// Begins to find out which commit the folder is, while it holds this revision.
    pub(super) fn search(&mut self, revision: PolicyRevision) {
        let Some(folder) = self.folder.clone() else { return };
        let search = async move { (revision, commit_of(&folder).await.map_err(|e| chain(&e))) };
        self.search = Some(AbortOnDropHandle::new(tokio::spawn(search)));
    }

    /// What the search that is under way finds. May be cancelled without losing it.
    pub(super) async fn found(&mut self) -> (PolicyRevision, Option<String>) {
        loop {
            let Some(search) = &mut self.search else { return std::future::pending().await };
            let ended = search.await;
            self.search = None;
            match ended {
                Ok((revision, Ok(commit))) => {
                    self.problem = None;
                    return (revision, commit);
                }
                Ok((_, Err(problem))) => {
                    if self.problem.as_ref() != Some(&problem) {
                        tracing::warn!(problem, "policy is shown without its commit");
                    }
                    self.problem = Some(problem);
                }
                // Another search took its place, or it panicked.
                Err(_) => {}
            }
        }
    }
}
