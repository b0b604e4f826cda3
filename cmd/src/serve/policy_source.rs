//! Policy from the folder: the newest that passes the check is in force, and the last such one is
//! kept in the store for a start with a broken folder (invariant 1).

use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_admin::{FindingView, PolicyView};
use ironmesh_catalog::{Finding, MeshSpecification, PolicyRevision};
use ironmesh_config::{Document, Loader, load_documents, render, watch_folder};
use ironmesh_store::Store;
use jiff::Timestamp;
use tokio::sync::watch;
use tokio::time::{Instant, sleep, sleep_until};
use tokio_util::sync::CancellationToken;

use crate::exit::chain;

/// How long a policy may be in force before it is kept: changes that follow each other are kept together.
const KEPT_AFTER: Duration = Duration::from_secs(1);

/// How often the folder is read where the system does not let it be watched.
const UNWATCHED: Duration = Duration::from_secs(5);

/// How long after it could not be kept it is tried again.
const KEPT_AGAIN_AFTER: Duration = Duration::from_secs(5);

/// The policy as it stands.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyState {
    /// What is in force; none before the first that passes.
    pub(crate) specification: Option<Arc<MeshSpecification>>,
    /// For people.
    pub(crate) view: PolicyView,
}

#[derive(Debug)]
pub(crate) struct PolicySource {
    folder: PathBuf,
    loader: Loader,
    store: Arc<Store>,
    /// What the folder held when it was last read, if it could be read.
    seen: Option<PolicyRevision>,
    /// What is in force and not in the store yet.
    unkept: Option<Arc<[Document]>>,
    /// When that is kept next.
    keep_at: Option<Instant>,
    /// Whether it could not be kept the last time, which was said then.
    is_keeping_down: bool,
    state: watch::Sender<PolicyState>,
}

impl PolicySource {
    /// Reads the folder for the first time; where it holds no good policy, the last good one is
    /// taken out of the store. Without either, there is nothing to serve until it is mended.
    pub(crate) fn open(
        folder: PathBuf,
        store: Arc<Store>,
    ) -> anyhow::Result<(Self, watch::Receiver<PolicyState>)> {
        let view = PolicyView { source: folder.display().to_string(), ..PolicyView::default() };
        let state = watch::Sender::new(PolicyState { specification: None, view });
        let receiver = state.subscribe();
        let mut source = Self {
            folder,
            loader: Loader::default(),
            store,
            seen: None,
            unkept: None,
            keep_at: None,
            is_keeping_down: false,
            state,
        };
        source.read();
        if source.state.borrow().specification.is_none() {
            source.fall_back()?;
        }
        Ok((source, receiver))
    }

    /// Follows the folder until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        let mut watch = watch_folder(self.folder.clone())
            .inspect_err(|error| {
                tracing::warn!(error = chain(error), "reading the policy every 5 s");
            })
            .ok();
        loop {
            // Read once more after the watch began: nothing is missed in between.
            tokio::task::block_in_place(|| self.read());
            loop {
                let keep_at = self.keep_at;
                let changed = async {
                    match &mut watch {
                        Some(watch) => watch.changed().await,
                        None => sleep(UNWATCHED).await,
                    }
                };
                tokio::select! {
                    () = changed => break,
                    () = sleep_until(keep_at.unwrap_or_else(Instant::now)), if keep_at.is_some() => {
                        tokio::task::block_in_place(|| self.keep());
                    }
                    () = shutdown.cancelled() => {
                        tokio::task::block_in_place(|| self.keep());
                        return Ok(());
                    }
                }
            }
        }
    }

    /// Reads the folder, and puts into force what passes.
    fn read(&mut self) {
        let loaded = match self.loader.load_folder(&self.folder) {
            Ok(loaded) => loaded,
            Err(error) => {
                self.unreadable(&chain(&error));
                return;
            }
        };
        if self.unkept.is_some() {
            self.keep_at.get_or_insert_with(|| Instant::now() + KEPT_AFTER);
        }
        if self.seen.as_ref() == Some(&loaded.revision) {
            return;
        }
        self.seen = Some(loaded.revision.clone());
        let drawn = render(&loaded.findings, &loaded.documents, false);
        if !loaded.findings.is_empty() {
            tracing::warn!(
                "policy in `{}` has findings:\n{}",
                self.folder.display(),
                drawn.trim_end()
            );
        }
        let Some(specification) = &loaded.specification else {
            self.refuse(&loaded.findings, drawn);
            self.keep();
            return;
        };
        self.put_in_force(specification, &loaded.findings, drawn);
        // Kept behind it, for proxies do not wait for the disk: until then the folder has it.
        self.unkept = Some(loaded.documents);
        self.keep_at.get_or_insert_with(|| Instant::now() + KEPT_AFTER);
    }

    /// Keeps what is in force for a start with a broken folder. A store that refuses must not stop the mesh:
    /// it is tried again and again, and said once.
    fn keep(&mut self) {
        self.keep_at = None;
        let Some(documents) = &self.unkept else { return };
        let documents = documents.iter().map(|d| (&*d.path, &*d.text));
        match self.store.put_last_good_policy(documents) {
            Ok(_) => {
                self.unkept = None;
                if std::mem::take(&mut self.is_keeping_down) {
                    tracing::info!("the policy is kept for the next start again");
                }
            }
            Err(error) => {
                self.keep_at = Some(Instant::now() + KEPT_AGAIN_AFTER);
                if !std::mem::replace(&mut self.is_keeping_down, true) {
                    tracing::error!(
                        error = chain(&error),
                        "cannot keep the policy for the next start; trying every 5 s"
                    );
                }
            }
        }
    }

    /// Puts the policy that was last kept into force, beside what is wrong with the folder.
    fn fall_back(&self) -> anyhow::Result<()> {
        let Some(kept) = self.store.last_good_policy()? else { return Ok(()) };
        let documents = kept.into_iter().map(|(path, text)| Document::new(path, text));
        let loaded = load_documents(documents);
        let Some(specification) = loaded.specification else {
            let drawn = render(&loaded.findings, &loaded.documents, false);
            tracing::error!("the last good policy is good no longer:\n{}", drawn.trim_end());
            return Ok(());
        };
        tracing::warn!(revision = %specification.revision, "serving the last good policy instead");
        self.state.send_modify(|state| {
            state.view.revision = Some(specification.revision.to_string());
            state.specification = Some(specification);
        });
        Ok(())
    }

    fn put_in_force(
        &self,
        specification: &Arc<MeshSpecification>,
        findings: &[Finding],
        drawn: String,
    ) {
        tracing::info!(
            revision = %specification.revision,
            services = specification.services.len(),
            traffic_targets = specification.traffic_targets.len(),
            "policy is in force"
        );
        let before = self.state.borrow().specification.as_ref().map_or(0, |old| old.services.len());
        if specification.services.is_empty() && before > 0 {
            tracing::warn!(
                services_before = before,
                "the policy folder defines nothing any more: nothing is allowed from now on"
            );
        }
        self.state.send_modify(|state| {
            state.specification = Some(Arc::clone(specification));
            state.view.revision = Some(specification.revision.to_string());
            state.view.stale_since = None;
            state.view.findings = findings.iter().map(FindingView::from).collect();
            state.view.drawn = drawn;
        });
    }

    /// What was in force stays in force.
    fn refuse(&self, findings: &[Finding], drawn: String) {
        let errors = findings.iter().filter(|finding| finding.is_error()).count();
        tracing::error!(errors, "the policy is refused; what was in force stays in force");
        self.state.send_modify(|state| {
            state.view.stale_since.get_or_insert_with(Timestamp::now);
            state.view.findings = findings.iter().map(FindingView::from).collect();
            state.view.drawn = drawn;
        });
    }

    fn unreadable(&mut self, problem: &str) {
        let is_news = self.state.borrow().view.drawn != problem;
        if !is_news {
            return;
        }
        self.seen = None;
        self.keep();
        tracing::error!(problem, "the policy cannot be read; what was in force stays in force");
        self.state.send_modify(|state| {
            state.view.stale_since.get_or_insert_with(Timestamp::now);
            state.view.findings = Vec::new();
            problem.clone_into(&mut state.view.drawn);
        });
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fs_err as fs;
    use ironmesh_store::KeyEncryptionKey;

    use super::*;

    fn store(folder: &Path) -> Arc<Store> {
        let (key, is_there) = (folder.join("kek"), Store::database_exists(folder));
        let kek = KeyEncryptionKey::load_or_create(&key, is_there).unwrap();
        Arc::new(Store::open(folder, kek).unwrap())
    }

    /// A store that keeps no policy: where that belongs is something else.
    fn refusing_store(folder: &Path) -> Arc<Store> {
        drop(store(folder));
        let database = redb::Database::open(folder.join("state.redb")).unwrap();
        let policy = redb::TableDefinition::<&str, &[u8]>::new("policy");
        let something_else = redb::TableDefinition::<u64, u64>::new("policy");
        let transaction = database.begin_write().unwrap();
        assert!(transaction.delete_table(policy).unwrap());
        transaction.open_table(something_else).unwrap();
        transaction.commit().unwrap();
        drop(database);
        store(folder)
    }

    #[tokio::test(start_paused = true)]
    async fn what_could_not_be_kept_is_tried_again_until_it_is() {
        let root = tempfile::tempdir().unwrap();
        let (refusing, good) = (root.path().join("refusing"), store(&root.path().join("good")));
        let folder = root.path().join("policy");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.toml"), "# 1").unwrap();
        let (mut source, _state) = PolicySource::open(folder, refusing_store(&refusing)).unwrap();
        for _ in 0..3 {
            source.keep();
            assert_eq!(source.keep_at, Some(Instant::now() + KEPT_AGAIN_AFTER));
            assert!(source.unkept.is_some() && source.is_keeping_down);
            tokio::time::advance(KEPT_AGAIN_AFTER).await;
            // The folder is as it was: what is due stays due.
            let due = source.keep_at;
            source.read();
            assert_eq!(source.keep_at, due);
        }
        source.store = Arc::clone(&good);
        source.keep();
        let kept = good.last_good_policy().unwrap();
        assert_eq!(kept, Some(vec![("a.toml".to_owned(), "# 1".to_owned())]));
        assert!(source.unkept.is_none() && source.keep_at.is_none() && !source.is_keeping_down);
    }

    #[test]
    fn what_is_in_force_is_kept_behind_it_and_before_it_is_needed() {
        let root = tempfile::tempdir().unwrap();
        let store = store(&root.path().join("state"));
        let folder = root.path().join("policy");
        fs::create_dir(&folder).unwrap();
        let write = |text: &str| fs::write(folder.join("a.toml"), text).unwrap();
        let kept = || Some(store.last_good_policy().unwrap()?.into_iter().next()?.1);
        write("# 0");
        let (mut source, state) = PolicySource::open(folder.clone(), Arc::clone(&store)).unwrap();
        source.keep();
        assert_eq!(kept().as_deref(), Some("# 0"));
        for number in 1..10 {
            write(&format!("# {number}"));
            source.read();
            assert_eq!(state.borrow().view.revision, source.seen.as_ref().map(ToString::to_string));
            assert_eq!(kept().as_deref(), Some("# 0"), "the disk is not written for each of them");
            assert!(source.keep_at.is_some_and(|at| at <= Instant::now() + KEPT_AFTER));
        }
        // From now on the folder has it no more.
        write("[[");
        source.read();
        assert_eq!(kept().as_deref(), Some("# 9"));
        assert!(source.unkept.is_none() && source.keep_at.is_none());
        write("# 10");
        source.read();
        fs::remove_dir_all(&folder).unwrap();
        source.read();
        assert_eq!(kept().as_deref(), Some("# 10"));
    }
}
