//! The policy source: activates the newest policy that passes the check. The store keeps the last active policy for a
//! start with a broken source (invariant 1). It never compiles policy.

mod apply;
mod changes;
mod commits;
mod finding_lines;
mod keeper;
mod pending_policy;
mod pin;
mod releases;
mod rollback;
mod source;

use std::sync::Arc;
use std::time::Duration;

use ironmesh_api::{FindingView, PolicyView};
use ironmesh_catalog::{
    Finding, MeshSpecification, PolicyPin, PolicyRecord, PolicyRevision, StoreError,
};
use ironmesh_config_language::{Document, Loaded, Loader, load_documents, render};
use ironmesh_store::Store;
use jiff::Timestamp;
use tokio::sync::{mpsc, watch};
use tokio::time::{Instant, sleep_until, timeout};
use tokio_util::sync::CancellationToken;

use crate::reconciler::change_log::policy_change;
use changes::Changes;
use commits::Commits;
use ironmesh_catalog::text::chain;
use ironmesh_config_settings::ReloadableSettings;
use keeper::Keeper;
use pending_policy::{PendingPolicy, Shrinking};
pub(crate) use releases::Releases;
pub use releases::current_release;
use rollback::SourceCommand;
pub(crate) use rollback::{SourceRequests, find};
use source::Reading;
pub(crate) use source::Source;

/// How long a start waits for its source before it uses the last good policy.
const FIRST_READ_TIMEOUT: Duration = Duration::from_secs(5);

/// The published state of policy.
#[derive(Debug, Clone, Default)]
pub(crate) struct PolicyState {
    /// The active policy; none before the first that passes.
    pub(crate) specification: Option<Arc<MeshSpecification>>,
    /// Its documents.
    pub(crate) documents: Arc<[Document]>,
    /// The view of it for the admin API.
    pub(crate) view: PolicyView,
}

/// The task that reads policy from its source and activates it.
#[derive(Debug)]
pub(crate) struct PolicySource {
    source: Source,
    loader: Loader,
    store: Arc<Store>,
    keeper: Keeper,
    commits: Commits,
    changes: Changes,
    requests: mpsc::Receiver<SourceCommand>,
    /// The revision in the source at the last reading; none if it could not be read.
    source_revision: Option<PolicyRevision>,
    /// The findings about the active policy.
    active_findings: Vec<FindingView>,
    /// The revision that was rolled back to and is active in place of the folder's.
    pin: Option<PolicyPin>,
    /// How long a large removal from the folder is held back, without `settings`.
    first_removal_hold: Duration,
    /// Where a new value of it comes from.
    settings: Option<watch::Receiver<ReloadableSettings>>,
    /// The folder's policy, while it is held back.
    held: Option<PendingPolicy>,
    /// The policy before the latest removals.
    shrinking: Option<Shrinking>,
    /// The documents of the active policy.
    documents: Arc<[Document]>,
    state: watch::Sender<PolicyState>,
}

impl PolicySource {
    /// Reads the source for the first time. If it holds no valid policy, the last good one of the store becomes active;
    /// without either, the control plane is not ready until the source is fixed.
    pub(crate) async fn open(
        source: Source,
        store: Arc<Store>,
        removal_hold: Duration,
    ) -> anyhow::Result<(Self, SourceRequests, watch::Receiver<PolicyState>)> {
        let (name, is_folder) = (source.name(), source.path().is_some());
        let is_releases = matches!(source, Source::Releases(_));
        let view = PolicyView { source: name, is_folder, is_releases, ..PolicyView::default() };
        let state = watch::Sender::new(PolicyState { view, ..PolicyState::default() });
        let receiver = state.subscribe();
        let (sender, requests) = mpsc::channel(1);
        let pin = match &source {
            Source::Folder(_) => store.policy_pin()?,
            Source::Etcd(_) | Source::Releases(_) => None,
        };
        let mut source = Self {
            loader: Loader::default(),
            keeper: Keeper::new(Arc::clone(&store)),
            commits: Commits::new(source.path()),
            changes: Changes::default(),
            source,
            store,
            requests,
            source_revision: None,
            active_findings: Vec::new(),
            pin,
            first_removal_hold: removal_hold,
            settings: None,
            held: None,
            shrinking: None,
            documents: Vec::new().into(),
            state,
        };
        source.resume_pin();
        let first = timeout(FIRST_READ_TIMEOUT, source.source.next()).await;
        source.apply_reading(first.unwrap_or_else(|_| {
            Err(format!("no answer within {} s; retrying", FIRST_READ_TIMEOUT.as_secs()))
        }));
        let is_serving = source.state.borrow().specification.is_some();
        if !is_serving {
            source.fall_back();
        }
        Ok((source, SourceRequests(sender), receiver))
    }

    /// Applies each new value of `settings`, from the next reading on.
    pub(crate) fn follow_settings(&mut self, settings: watch::Receiver<ReloadableSettings>) {
        self.settings = Some(settings);
    }

    /// How long a large removal from the folder is held back.
    fn removal_hold(&self) -> Duration {
        let settings = self.settings.as_ref();
        settings.map_or(self.first_removal_hold, |settings| settings.borrow().removal_hold)
    }

    /// Follows the source until `shutdown`.
    pub(crate) async fn run(mut self, shutdown: CancellationToken) -> anyhow::Result<()> {
        loop {
            let due = self.keeper.due();
            let hold_due = self.held.as_ref().map(PendingPolicy::due);
            tokio::select! {
                reading = self.source.next() => {
                    tokio::task::block_in_place(|| self.apply_reading(reading));
                }
                found = self.commits.found() => self.note_commit(found),
                Some(request) = self.requests.recv() => {
                    tokio::task::block_in_place(|| self.answer(request));
                }
                () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {
                    tokio::task::block_in_place(|| self.keeper.keep());
                }
                () = sleep_until(hold_due.unwrap_or_else(Instant::now)), if hold_due.is_some() => {
                    tokio::task::block_in_place(|| self.activate_after_hold());
                }
                () = shutdown.cancelled() => {
                    tokio::task::block_in_place(|| self.keeper.keep());
                    self.changes.flush();
                    return Ok(());
                }
            }
        }
    }

    /// Handles a reading, or the failure to read.
    fn apply_reading(&mut self, reading: Result<Reading, String>) {
        match reading {
            Ok(Reading { documents, findings, pushed }) => {
                let loaded = self.loader.load(documents, findings);
                self.check(&loaded, pushed);
                self.state.send_if_modified(|state| state.view.unreadable.take().is_some());
                // Each time: the same documents may have been committed meanwhile.
                self.commits.search(loaded.revision);
            }
            Err(problem) => self.report_unreadable(&problem),
        }
    }

    /// Activates what was loaded, if it passes the check.
    fn check(&mut self, loaded: &Loaded, pushed: Option<PolicyRecord>) {
        if self.source_revision.as_ref() == Some(&loaded.revision) {
            self.renew_findings(loaded);
            return self.show_push(pushed);
        }
        self.source_revision = Some(loaded.revision.clone());
        // If no policy is active, the revision that was rolled back to is no longer valid, and the folder's may be.
        let serves = self.state.borrow().specification.is_some();
        if self.is_rolled_back_from(&loaded.revision) && serves {
            self.end_hold();
            self.show_rolled_back_from(loaded);
            return self.publish_pin();
        }
        finding_lines::log(&self.source.name(), &loaded.findings);
        let Some(specification) = &loaded.specification else {
            self.end_hold();
            self.note_rejection(loaded, pushed);
            self.reject(loaded);
            self.keeper.keep();
            return;
        };
        if pushed.is_none() && self.hold_back(loaded, specification) {
            self.keeper.keep();
            return;
        }
        self.end_hold();
        self.end_pin();
        self.follow_removals(specification);
        let record = pushed.unwrap_or_else(|| new_record(&loaded.revision));
        self.note_change(&record);
        self.activate(specification, &record, &loaded.documents, &loaded.findings);
    }

    /// Updates the findings of the active policy: files that are ignored may have appeared or gone.
    fn renew_findings(&self, loaded: &Loaded) {
        let findings: Vec<_> = loaded.findings.iter().map(FindingView::from).collect();
        self.state.send_if_modified(|state| {
            let is_active = state.view.revision.as_deref() == Some(&*loaded.revision.0);
            let is_news =
                is_active && state.view.stale_since.is_none() && state.view.findings != findings;
            if is_news {
                show(&mut state.view, &loaded.findings, &loaded.documents);
            }
            is_news
        });
    }

    /// Activates the last good policy, besides the findings about the source.
    fn fall_back(&mut self) {
        if let Some(last) = self.last_good() {
            self.serve_last_good(last);
        }
    }

    /// The last good policy, checked again.
    fn last_good(&self) -> Option<Loaded> {
        let kept = match self.store.last_good_policy() {
            Ok(kept) => kept?,
            Err(error) => {
                // The source may hold a valid policy later, so the start continues.
                tracing::error!(error = chain(&error), "cannot read the last good policy");
                return None;
            }
        };
        let documents = kept.into_iter().map(|(path, text)| Document::new(path, text));
        Some(load_documents(documents))
    }

    fn serve_last_good(&mut self, loaded: Loaded) {
        let Some(specification) = loaded.specification else {
            tracing::error!("the last good policy is no longer valid");
            return finding_lines::log("last good policy", &loaded.findings);
        };
        let record = self.store.policies().ok().and_then(|kept| kept.into_iter().next());
        tracing::warn!(revision = %specification.revision, "the last good policy is active instead");
        self.documents = Arc::clone(&loaded.documents);
        self.active_findings = loaded.findings.iter().map(FindingView::from).collect();
        self.state.send_modify(|state| {
            state.view.revision = Some(specification.revision.to_string());
            state.view.active_record = record;
            state.documents = loaded.documents;
            state.specification = Some(specification);
        });
    }

    /// A stored revision, checked again: a new version of this program may read it differently.
    fn load_kept(&self, revision: &PolicyRevision) -> Result<Option<Loaded>, StoreError> {
        let kept = self.store.policy(revision)?;
        Ok(kept.map(|documents| {
            load_documents(documents.into_iter().map(|(path, text)| Document::new(path, text)))
        }))
    }

    /// Publishes a policy that passed the check, and stores it afterwards: proxies do not wait for the disk.
    fn activate(
        &mut self,
        specification: &Arc<MeshSpecification>,
        record: &PolicyRecord,
        documents: &Arc<[Document]>,
        findings: &[Finding],
    ) {
        tracing::info!(
            revision = %specification.revision,
            change = policy_change(&specification.revision),
            commit = record.commit,
            by = record.by,
            services = specification.services.len(),
            traffic_targets = specification.traffic_targets.len(),
            "policy is active"
        );
        let before = self.state.borrow().specification.as_ref().map_or(0, |old| old.services.len());
        if specification.services.is_empty() && before > 0 {
            tracing::warn!(
                services_before = before,
                "policy defines no services any more: all calls are denied"
            );
        }
        self.state.send_modify(|state| {
            state.specification = Some(Arc::clone(specification));
            state.documents = Arc::clone(documents);
            state.view.revision = Some(specification.revision.to_string());
            state.view.active_record = Some(record.clone());
            state.view.stale_since = None;
            state.view.held = None;
            show(&mut state.view, findings, documents);
        });
        self.active_findings = findings.iter().map(FindingView::from).collect();
        self.documents = Arc::clone(documents);
        self.keeper.put(record.clone(), Arc::clone(documents));
    }

    /// Shows the newest push of the active revision, if the same revision was pushed again.
    fn show_push(&mut self, pushed: Option<PolicyRecord>) {
        // A request has set the record of an active release. The one on disk is older if it could not be replaced.
        let Some(pushed) = pushed.filter(|_| !matches!(self.source, Source::Releases(_))) else {
            return;
        };
        let active_record = self.state.borrow().view.active_record.clone();
        if active_record.is_some_and(|old| old.revision == pushed.revision && old != pushed) {
            self.keeper.put(pushed.clone(), Arc::clone(&self.documents));
            self.state.send_modify(|state| state.view.active_record = Some(pushed));
        }
    }

    /// Shows the commit of the active policy, if the folder still holds that policy.
    fn show_commit(&mut self, revision: &PolicyRevision, commit: Option<String>) {
        let active_record = self.state.borrow().view.active_record.clone();
        let Some(mut record) = active_record.filter(|record| record.revision == *revision) else {
            return;
        };
        if record.commit == commit || self.source_revision.as_ref() != Some(revision) {
            return;
        }
        tracing::info!(%revision, commit, "commit of the active policy found");
        record.commit = commit;
        self.keeper.put(record.clone(), Arc::clone(&self.documents));
        self.state.send_modify(|state| state.view.active_record = Some(record));
    }

    /// Rejects a policy with errors: the previous one stays active.
    fn reject(&self, loaded: &Loaded) {
        let errors = loaded.findings.iter().filter(|finding| finding.is_error()).count();
        tracing::error!(errors, "the policy is rejected; {}", self.remaining_policy());
        self.state.send_modify(|state| {
            state.view.stale_since.get_or_insert_with(Timestamp::now);
            show(&mut state.view, &loaded.findings, &loaded.documents);
        });
    }

    /// What stays active when the source holds nothing new that is valid. At a start, the last good policy is looked
    /// up next, and logged by itself.
    fn remaining_policy(&self) -> &'static str {
        if self.state.borrow().specification.is_some() {
            "the previous policy stays active"
        } else {
            "no policy is active yet"
        }
    }

    fn report_unreadable(&mut self, problem: &str) {
        let is_news = self.state.borrow().view.rendered != problem;
        if !is_news {
            return;
        }
        self.source_revision = None;
        self.end_hold();
        self.keeper.keep();
        tracing::error!(problem, "the policy cannot be read; {}", self.remaining_policy());
        self.state.send_modify(|state| {
            state.view.stale_since.get_or_insert_with(Timestamp::now);
            state.view.findings = Vec::new();
            state.view.unreadable = Some(problem.to_owned());
            problem.clone_into(&mut state.view.rendered);
            state.view.annotated.clear();
        });
    }
}

/// Shows findings: without lines of policy for everyone, and annotated with them for those who may read policy.
fn show(view: &mut PolicyView, findings: &[Finding], documents: &[Document]) {
    view.findings = findings.iter().map(FindingView::from).collect();
    view.rendered = render(findings, &[], false);
    view.annotated = render(findings, documents, false);
}

/// The record of a revision of the folder that becomes active now.
fn new_record(revision: &PolicyRevision) -> PolicyRecord {
    PolicyRecord {
        revision: revision.clone(),
        at: Timestamp::now(),
        commit: None,
        by: None,
        message: None,
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use fs_err as fs;
    use ironmesh_catalog::PolicyPin;
    use ironmesh_config_sources::{Folder, read_folder};
    use ironmesh_store::KeyEncryptionKey;

    use super::*;

    pub(super) const HOLD: Duration = Duration::from_secs(30);

    pub(super) fn store(folder: &Path) -> Arc<Store> {
        let (key, is_there) = (folder.join("kek"), Store::database_exists(folder));
        let kek = KeyEncryptionKey::load_or_create(&key, is_there).unwrap();
        Arc::new(Store::open(folder, kek).unwrap())
    }

    /// A store that cannot write policy: its table has different types.
    pub(super) fn unwritable_store(folder: &Path) -> Arc<Store> {
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

    #[tokio::test]
    async fn active_policy_is_stored_later_or_at_once_if_the_folder_fails() {
        let root = tempfile::tempdir().unwrap();
        let store = store(&root.path().join("state"));
        let folder = root.path().join("policy");
        fs::create_dir(&folder).unwrap();
        let write = |text: &str| fs::write(folder.join("a.toml"), text).unwrap();
        let kept = || Some(store.last_good_policy().unwrap()?.into_iter().next()?.1);
        // This test, not the folder, signals changes.
        let read = || {
            let Folder { documents, findings } = read_folder(&folder).unwrap();
            Ok(Reading { documents, findings, pushed: None })
        };
        write("# 0");
        let opened = PolicySource::open(Source::folder(folder.clone()), Arc::clone(&store), HOLD);
        let (mut source, _, state) = opened.await.unwrap();
        source.keeper.keep();
        assert_eq!(kept().as_deref(), Some("# 0"));
        for number in 1..10 {
            write(&format!("# {number}"));
            source.apply_reading(read());
            assert_eq!(
                state.borrow().view.revision,
                source.source_revision.as_ref().map(ToString::to_string)
            );
            assert_eq!(kept().as_deref(), Some("# 0"), "the store is not written for each change");
            assert!(source.keeper.due().is_some());
        }
        // The folder no longer has the active policy, so the keeper stores it at once.
        write("[[");
        source.apply_reading(read());
        assert_eq!(kept().as_deref(), Some("# 9"));
        assert!(source.keeper.due().is_none());
        write("# 10");
        source.apply_reading(read());
        source.apply_reading(Err("it is gone".to_owned()));
        assert_eq!(kept().as_deref(), Some("# 10"));
    }

    /// A later version of this program may reject a policy that passed once.
    #[tokio::test]
    async fn invalid_pinned_policy_falls_back_to_the_folder() {
        let root = tempfile::tempdir().unwrap();
        let store = store(&root.path().join("state"));
        let folder = root.path().join("policy");
        fs::create_dir(&folder).unwrap();
        fs::write(folder.join("a.toml"), "# good").unwrap();
        let held = ironmesh_config_sources::load_folder(&folder).unwrap().revision;
        let record = PolicyRecord {
            revision: PolicyRevision("was-good-once".into()),
            at: Timestamp::now(),
            commit: None,
            by: None,
            message: None,
        };
        store.put_policy(&record, [("a.toml", "[[")]).unwrap();
        let pin = PolicyPin { record, folder: Some(held.clone()) };
        store.put_policy_pin(Some(&pin)).unwrap();
        let opened = PolicySource::open(Source::folder(folder), Arc::clone(&store), HOLD);
        let (_, _, state) = opened.await.unwrap();
        assert_eq!(state.borrow().view.revision, Some(held.to_string()));
        assert_eq!(store.policy_pin().unwrap(), None);
    }
}
