//! Stores the active policy, for a start with a broken source and for a rollback. Proxies do not wait for the disk: the
//! write follows the publication (docs/decisions/0018).

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::PolicyRecord;
use ironmesh_config_language::Document;
use ironmesh_store::Store;
use tokio::time::Instant;

use ironmesh_catalog::text::chain;

/// The delay of a write: changes in quick succession are written once.
const WRITE_DELAY: Duration = Duration::from_secs(1);

/// The pause before a failed write is retried.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// The writer of the active policy.
#[derive(Debug)]
pub(super) struct Keeper {
    store: Arc<Store>,
    /// The active policy, if the store does not have it yet.
    unkept: Option<(PolicyRecord, Arc<[Document]>)>,
    /// When it is written next.
    due: Option<Instant>,
    /// Whether the last write failed, which was logged then.
    is_down: bool,
}

impl Keeper {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, unkept: None, due: None, is_down: false }
    }

    /// When [`Self::keep`] is due.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Schedules a write, in place of one that is pending.
    pub(super) fn put(&mut self, record: PolicyRecord, documents: Arc<[Document]>) {
        self.unkept = Some((record, documents));
        self.due.get_or_insert_with(|| Instant::now() + WRITE_DELAY);
    }

    /// Writes the pending policy now. A failing store must not stop the mesh: the write is retried until it succeeds,
    /// and the failure is logged once.
    pub(super) fn keep(&mut self) {
        self.due = None;
        let Some((record, documents)) = &self.unkept else { return };
        let documents = documents.iter().map(|d| (&*d.path, &*d.text));
        match self.store.put_policy(record, documents) {
            Ok(_) => {
                self.unkept = None;
                if std::mem::take(&mut self.is_down) {
                    tracing::info!("the active policy is stored again");
                }
            }
            Err(error) => {
                self.due = Some(Instant::now() + RETRY_PAUSE);
                if !std::mem::replace(&mut self.is_down, true) {
                    tracing::error!(
                        error = chain(&error),
                        action = "retrying every 5 s",
                        "cannot store the active policy for the next start"
                    );
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::PolicyRevision;
    use jiff::Timestamp;

    use super::super::tests::{store, unwritable_store};
    use super::*;

    fn record() -> PolicyRecord {
        let revision = PolicyRevision("1".into());
        PolicyRecord { revision, at: Timestamp::UNIX_EPOCH, commit: None, by: None, message: None }
    }

    #[tokio::test(start_paused = true)]
    async fn failed_policy_write_is_retried_until_it_succeeds() {
        let root = tempfile::tempdir().unwrap();
        let good = store(&root.path().join("good"));
        let mut keeper = Keeper::new(unwritable_store(&root.path().join("refusing")));
        keeper.put(record(), [Document::new("a.toml", "# 1")].into());
        assert_eq!(keeper.due(), Some(Instant::now() + WRITE_DELAY));
        for _ in 0..3 {
            keeper.keep();
            assert_eq!(keeper.due(), Some(Instant::now() + RETRY_PAUSE));
            assert!(keeper.is_down);
            tokio::time::advance(RETRY_PAUSE).await;
            // A new policy does not postpone the retry.
            let due = keeper.due();
            keeper.put(record(), [Document::new("a.toml", "# 2")].into());
            assert_eq!(keeper.due(), due);
        }
        keeper.store = Arc::clone(&good);
        keeper.keep();
        let kept = good.last_good_policy().unwrap();
        assert_eq!(kept, Some(vec![("a.toml".to_owned(), "# 2".to_owned())]));
        assert!(keeper.unkept.is_none() && keeper.due().is_none() && !keeper.is_down);
    }
}
