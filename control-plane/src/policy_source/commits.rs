//! Finds the git commit of the policy folder in the background: git takes its time, and nothing waits for it.

use std::path::{Path, PathBuf};

use ironmesh_catalog::PolicyRevision;
use ironmesh_config_sources::commit_of;
use tokio_util::task::AbortOnDropHandle;

use ironmesh_catalog::text::chain;

/// The result of a search: the commit of a revision, if it has one.
type CommitSearch = (PolicyRevision, Result<Option<String>, String>);

/// The search for the commit of the policy folder.
#[derive(Debug)]
pub(super) struct Commits {
    /// The policy folder; none if policy comes from a different source.
    folder: Option<PathBuf>,
    /// The search in progress.
    search: Option<AbortOnDropHandle<CommitSearch>>,
    /// The last failure, which was logged then.
    problem: Option<String>,
}

impl Commits {
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Self { folder: folder.map(Path::to_owned), search: None, problem: None }
    }

    /// Starts a search for the commit of the folder, while it holds this revision.
    pub(super) fn search(&mut self, revision: PolicyRevision) {
        let Some(folder) = self.folder.clone() else { return };
        let search = async move { (revision, commit_of(&folder).await.map_err(|e| chain(&e))) };
        self.search = Some(AbortOnDropHandle::new(tokio::spawn(search)));
    }

    /// The result of the search in progress. Cancelling the wait does not lose it.
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
                        tracing::warn!(problem, "cannot find the commit of the policy");
                    }
                    self.problem = Some(problem);
                }
                // A newer search replaced it, or it panicked.
                Err(_) => {}
            }
        }
    }
}
