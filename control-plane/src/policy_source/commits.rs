//! Finds the git commit of the policy folder in the background: git takes its time, and nothing waits for it.

use std::path::{Path, PathBuf};

use ironmesh_catalog::PolicyRevision;
use ironmesh_config_sources::{author_of, commit_of};
use tokio_util::task::AbortOnDropHandle;

use ironmesh_catalog::text::chain;

/// The result of a search.
#[derive(Debug)]
pub(super) struct FoundCommit {
    /// The revision whose commit was searched.
    pub(super) revision: PolicyRevision,
    /// The commit, if the revision has one; or why git does not report it.
    pub(super) commit: Result<Option<String>, String>,
    /// The author of the newest commit of the folder, if the revision is committed.
    pub(super) author: Option<String>,
}

/// The search for the commit of the policy folder.
#[derive(Debug)]
pub(super) struct Commits {
    /// The policy folder; none if policy comes from a different source.
    folder: Option<PathBuf>,
    /// The search in progress.
    search: Option<AbortOnDropHandle<FoundCommit>>,
    /// The last commit found, and its author.
    known: Option<(String, Option<String>)>,
    /// The last failure, which was logged then.
    problem: Option<String>,
}

impl Commits {
    pub(super) fn new(folder: Option<&Path>) -> Self {
        Self { folder: folder.map(Path::to_owned), search: None, known: None, problem: None }
    }

    /// Starts a search for the commit of the folder, while it holds this revision.
    pub(super) fn search(&mut self, revision: PolicyRevision) {
        let Some(folder) = self.folder.clone() else { return };
        let known = self.known.clone();
        let search = async move {
            let commit = commit_of(&folder).await.map_err(|e| chain(&e));
            let author = match (&commit, known) {
                (Ok(Some(commit)), Some((same, author))) if *commit == same => author,
                (Ok(Some(commit)), _) if !is_dirty(commit) => author_of(&folder, commit).await,
                _ => None,
            };
            FoundCommit { revision, commit, author }
        };
        self.search = Some(AbortOnDropHandle::new(tokio::spawn(search)));
    }

    /// The result of the search in progress. Cancelling the wait does not lose it.
    pub(super) async fn found(&mut self) -> FoundCommit {
        loop {
            let Some(search) = &mut self.search else { return std::future::pending().await };
            let ended = search.await;
            self.search = None;
            // A newer search replaced it, or it panicked.
            let Ok(found) = ended else { continue };
            let problem = found.commit.as_ref().err().cloned();
            if let Some(problem) = problem.as_ref().filter(|new| self.problem.as_ref() != Some(new))
            {
                tracing::warn!(problem, "cannot find the commit of the policy");
            }
            self.problem = problem;
            if let Ok(Some(commit)) = &found.commit {
                self.known = Some((commit.clone(), found.author.clone()));
            }
            return found;
        }
    }
}

/// Whether the documents differ from the commit.
pub(super) fn is_dirty(commit: &str) -> bool {
    commit.ends_with("+dirty")
}
