//! Keeps what is in force, for a start with a broken source and for a rollback. Proxies do not wait for the
//! disk, so it comes behind what is published (docs/decisions/0018).

use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::PolicyRecord;
use ironmesh_config_language::Document;
use ironmesh_store::Store;
use tokio::time::Instant;

use ironmesh_catalog::text::chain;

/// How long a policy may be in force before it is kept: changes that follow each other are kept together.
const AFTER: Duration = Duration::from_secs(1);

/// How long after it could not be kept it is tried again.
const AGAIN_AFTER: Duration = Duration::from_secs(5);

#[derive(Debug)]
pub(super) struct Keeper {
    store: Arc<Store>,
    /// What is in force and not in the store yet.
    unkept: Option<(PolicyRecord, Arc<[Document]>)>,
    /// When that is kept next.
    due: Option<Instant>,
    /// Whether it could not be kept the last time, which was said then.
    is_down: bool,
}

impl Keeper {
    pub(super) fn new(store: Arc<Store>) -> Self {
        Self { store, unkept: None, due: None, is_down: false }
    }

    /// When [`Self::keep`] is to be called.
    pub(super) fn due(&self) -> Option<Instant> {
        self.due
    }

    /// Has this kept soon, in place of what is not kept yet.
    pub(super) fn put(&mut self, record: PolicyRecord, documents: Arc<[Document]>) {
        self.unkept = Some((record, documents));
        self.due.get_or_insert_with(|| Instant::now() + AFTER);
    }

    /// Keeps now what is not kept yet. A store that refuses must not stop the mesh: it is tried again and
    /// again, and said once.
    pub(super) fn keep(&mut self) {
        self.due = None;
        let Some((record, documents)) = &self.unkept else { return };
        let documents = documents.iter().map(|d| (&*d.path, &*d.text));
        match self.store.put_policy(record, documents) {
            Ok(_) => {
                self.unkept = None;
                if std::mem::take(&mut self.is_down) {
                    tracing::info!("the policy is kept for the next start again");
                }
            }
            Err(error) => {
                self.due = Some(Instant::now() + AGAIN_AFTER);
                if !std::mem::replace(&mut self.is_down, true) {
                    tracing::error!(
                        error = chain(&error),
                        "cannot keep the policy for the next start; trying every 5 s"
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

    use super::super::tests::{refusing_store, store};
    use super::*;

    fn record() -> PolicyRecord {
        let revision = PolicyRevision("1".into());
        PolicyRecord { revision, at: Timestamp::UNIX_EPOCH, commit: None, by: None, message: None }
    }

    #[tokio::test(start_paused = true)]
    async fn failed_policy_write_is_retried_until_it_succeeds() {
        let root = tempfile::tempdir().unwrap();
        let good = store(&root.path().join("good"));
        let mut keeper = Keeper::new(refusing_store(&root.path().join("refusing")));
        keeper.put(record(), [Document::new("a.toml", "# 1")].into());
        assert_eq!(keeper.due(), Some(Instant::now() + AFTER));
        for _ in 0..3 {
            keeper.keep();
            assert_eq!(keeper.due(), Some(Instant::now() + AGAIN_AFTER));
            assert!(keeper.is_down);
            tokio::time::advance(AGAIN_AFTER).await;
            // What is due stays due.
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
