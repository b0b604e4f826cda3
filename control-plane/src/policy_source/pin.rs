//! The policy pin: the revision that was rolled back to stays active until the folder holds a different policy that
//! passes the check. It lasts over restarts, so each change of it is stored.

use ironmesh_api::FindingView;
use ironmesh_catalog::{PolicyPin, PolicyRecord, PolicyRevision};
use ironmesh_config_language::Loaded;

use super::PolicySource;
use ironmesh_catalog::text::chain;

impl PolicySource {
    /// At a start: activates the pinned revision, whichever was stored last. They differ if the control plane was
    /// killed during a rollback, or could not store it.
    pub(super) fn resume_pin(&mut self) {
        let Some(PolicyPin { record, .. }) = self.pin.clone() else { return };
        let revision = &record.revision;
        let kept = self.load_kept(revision).unwrap_or_else(|error| {
            tracing::error!(
                error = chain(&error),
                "cannot read the policy that was rolled back to"
            );
            None
        });
        if let Some(Loaded { specification: Some(specification), documents, findings, .. }) = &kept
        {
            self.activate(specification, &record, documents, findings);
        } else {
            tracing::error!(
                %revision,
                "the policy that was rolled back to is missing or no longer valid"
            );
            self.fall_back();
        }
        self.publish_pin();
    }

    /// Whether `revision` is the one that was rolled back from. If that is unknown, since the folder could not be read
    /// then, it is the first revision in the folder.
    pub(super) fn is_rolled_back_from(&mut self, revision: &PolicyRevision) -> bool {
        let Some(pin) = &mut self.pin else { return false };
        if pin.folder.is_none() && *revision != pin.record.revision {
            pin.folder = Some(revision.clone());
            if let Err(error) = self.store.put_policy_pin(self.pin.as_ref()) {
                tracing::error!(
                    error = chain(&error),
                    "cannot store which policy was rolled back from"
                );
            }
        }
        self.pin.as_ref().is_some_and(|pin| pin.folder.as_ref() == Some(revision))
    }

    /// Ends the rollback: the folder holds a different policy that passed the check.
    pub(super) fn end_pin(&mut self) {
        let Some(pin) = self.pin.take() else { return };
        let revision = pin.record.revision;
        tracing::info!(%revision, "the policy folder has changed: the rollback is over");
        if let Err(error) = self.store.put_policy_pin(None) {
            // The next start detects it again: the folder differs from the pinned one.
            tracing::error!(error = chain(&error), "cannot store the end of the rollback");
        }
        self.publish_pin();
    }

    /// Publishes that the folder's policy is not active, during a rollback.
    pub(super) fn publish_pin(&self) {
        let Some(pin) = &self.pin else {
            self.state.send_modify(|state| state.view.rolled_back = None);
            return;
        };
        let PolicyRecord { revision, at, by, message, .. } = &pin.record;
        let by = by.as_deref().unwrap_or("an unnamed user");
        let why = message.as_ref().map(|text| format!(" (\"{text}\")")).unwrap_or_default();
        let (holds, or) = match &pin.folder {
            Some(folder) => (
                format!(" (revision {folder})"),
                format!(", or until `ironmesh policy rollback {folder}`"),
            ),
            None => (String::new(), String::new()),
        };
        let words = format!(
            "{by} rolled back to {revision} at {at:.0}{why}: the policy in `{}`{holds} is not active until it \
             is replaced by a different one that passes{or}\n",
            self.source.name(),
        );
        if self.state.borrow().view.rendered != words {
            tracing::warn!("{}", words.trim_end());
        }
        self.state.send_modify(|state| {
            state.view.stale_since = Some(*at);
            state.view.rolled_back = Some(pin.clone());
            state.view.rendered = words;
            state.view.annotated.clear();
        });
    }

    /// Shows the findings while `loaded`, which was rolled back from, stays in the folder. Its warnings are omitted,
    /// since it is not active; its errors show that it cannot become active again.
    pub(super) fn show_rolled_back_from(&self, loaded: &Loaded) {
        let errors = loaded.findings.iter().filter(|finding| finding.is_error());
        let findings = self.active_findings.iter().cloned().chain(errors.map(FindingView::from));
        let findings = findings.collect();
        self.state.send_modify(|state| state.view.findings = findings);
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::sync::Arc;

    use fs_err as fs;
    use ironmesh_config_language::{Document, load_documents};
    use ironmesh_store::Store;
    use jiff::Timestamp;
    use tempfile::TempDir;

    use super::super::tests::{HOLD, store};
    use super::super::{PolicyState, Source};
    use super::*;

    /// A control plane's state, and its policy folder of one document.
    struct Machine {
        root: TempDir,
        store: Arc<Store>,
    }

    impl Machine {
        fn new() -> Self {
            let root = tempfile::tempdir().unwrap();
            fs::create_dir(root.path().join("policy")).unwrap();
            let store = store(&root.path().join("state"));
            Self { root, store }
        }

        fn folder(&self) -> PathBuf {
            self.root.path().join("policy")
        }

        fn write(&self, text: &str) {
            fs::write(self.folder().join("a.toml"), text).unwrap();
        }

        /// Stores a policy of this text as the newest.
        fn keep(&self, text: &str) -> PolicyRecord {
            let record = PolicyRecord {
                revision: revision(text),
                at: Timestamp::UNIX_EPOCH,
                commit: None,
                by: Some("anna".to_owned()),
                message: Some("too fast".to_owned()),
            };
            self.store.put_policy(&record, [("a.toml", text)]).unwrap();
            record
        }

        fn pin(&self, record: PolicyRecord, folder: Option<PolicyRevision>) {
            self.store.put_policy_pin(Some(&PolicyPin { record, folder })).unwrap();
        }

        /// The policy state after a start.
        async fn start(&self) -> PolicyState {
            let opened =
                PolicySource::open(Source::folder(self.folder()), Arc::clone(&self.store), HOLD);
            let (_source, _, state) = opened.await.unwrap();
            state.borrow().clone()
        }
    }

    fn revision(text: &str) -> PolicyRevision {
        load_documents([Document::new("a.toml", text)]).revision
    }

    /// The active revision, and whether it was rolled back to.
    fn active_revision(state: &PolicyState) -> (Option<PolicyRevision>, bool) {
        let specification = state.specification.as_ref();
        (specification.map(|all| all.revision.clone()), state.view.rolled_back.is_some())
    }

    #[tokio::test]
    async fn start_activates_the_pinned_policy_not_the_last_stored_one() {
        let machine = Machine::new();
        let one = machine.keep("# one");
        machine.keep("# two");
        machine.write("# two");
        // As if the control plane was killed before it stored the rollback.
        machine.pin(one.clone(), Some(revision("# two")));
        let state = machine.start().await;
        assert_eq!(active_revision(&state), (Some(revision("# one")), true));
        assert_eq!(state.view.active_record, Some(one));
        assert!(state.view.rendered.contains("anna rolled back to"), "{}", state.view.rendered);
        assert_eq!(state.view.stale_since, Some(Timestamp::UNIX_EPOCH));
    }

    #[tokio::test]
    async fn first_folder_revision_after_a_rollback_survives_restarts() {
        let machine = Machine::new();
        let one = machine.keep("# one");
        // The folder could not be read at the rollback.
        machine.pin(one, None);
        machine.write("# two");
        for _ in 0..2 {
            assert_eq!(active_revision(&machine.start().await), (Some(revision("# one")), true));
        }
        machine.write("# three");
        assert_eq!(active_revision(&machine.start().await), (Some(revision("# three")), false));
        // The rollback has ended for good.
        machine.write("# two");
        assert_eq!(active_revision(&machine.start().await), (Some(revision("# two")), false));
    }

    #[tokio::test]
    async fn folder_equal_to_the_pinned_policy_ends_the_rollback() {
        let machine = Machine::new();
        machine.pin(machine.keep("# one"), None);
        machine.write("# one");
        assert_eq!(active_revision(&machine.start().await), (Some(revision("# one")), false));
        assert_eq!(machine.store.policy_pin().unwrap(), None);
    }

    // Its warnings are about policy that is not active.
    #[tokio::test]
    async fn folder_replaced_by_a_rollback_produces_no_warnings() {
        let machine = Machine::new();
        machine.pin(machine.keep("# one"), Some(revision(IDLE)));
        machine.write(IDLE);
        let state = machine.start().await;
        assert_eq!(active_revision(&state), (Some(revision("# one")), true));
        assert!(state.view.findings.is_empty(), "{:?}", state.view.findings);
        // The active policy keeps its own.
        machine.pin(machine.keep(IDLE), Some(revision("# two")));
        machine.write("# two");
        let state = machine.start().await;
        assert_eq!(active_revision(&state), (Some(revision(IDLE)), true));
        assert_eq!(state.view.findings.len(), 1, "{:?}", state.view.findings);
    }

    /// A policy with a warning: a namespace without services.
    const IDLE: &str = "[[namespace]]\nname = \"idle\"\nmode = \"audit\"\n";

    #[tokio::test]
    async fn invalid_or_missing_folder_after_restart_keeps_the_rollback() {
        let machine = Machine::new();
        machine.pin(machine.keep("# one"), Some(revision("# two")));
        machine.write("[[");
        let state = machine.start().await;
        assert_eq!(active_revision(&state), (Some(revision("# one")), true));
        assert_eq!(state.view.findings.len(), 1);
        fs::remove_dir_all(machine.folder()).unwrap();
        let state = machine.start().await;
        assert_eq!(active_revision(&state), (Some(revision("# one")), true));
        assert!(
            state.view.rendered.contains("there is no policy folder"),
            "{}",
            state.view.rendered
        );
        fs::create_dir(machine.folder()).unwrap();
        machine.write("# two");
        assert_eq!(active_revision(&machine.start().await), (Some(revision("# one")), true));
    }

    #[tokio::test]
    async fn lost_pinned_policy_falls_back_to_the_last_good_one() {
        let machine = Machine::new();
        let mut lost = machine.keep("# one");
        lost.revision = revision("# lost");
        machine.pin(lost, Some(revision("# two")));
        machine.write("# two");
        assert_eq!(active_revision(&machine.start().await), (Some(revision("# one")), true));
    }
}
