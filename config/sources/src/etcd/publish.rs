//! The publication of a checked policy: a push, unless etcd holds that policy already.

use ironmesh_catalog::{PolicyRecord, Removals};
use ironmesh_config_language::{Loaded, load_documents};

use super::{EtcdPolicy, PolicyError, PushError};

/// The outcome of a publication.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PublishOutcome {
    /// The policy has errors.
    Rejected,
    /// The revision is already the current one.
    Current,
    /// The revision is now the current one.
    Pushed,
}

impl EtcdPolicy {
    /// Pushes a loaded policy if it is accepted and not current, as [`EtcdPolicy::push`] does. Also returns the objects
    /// that it removes.
    pub async fn publish(
        &mut self,
        loaded: &Loaded,
        record: &PolicyRecord,
        expected: Option<&str>,
    ) -> Result<(PublishOutcome, Removals), PushError> {
        let Some(specification) = &loaded.specification else {
            return Ok((PublishOutcome::Rejected, Removals::default()));
        };
        let kept = self.kept().await?;
        let current = kept.current.and_then(|at| kept.records.get(at));
        let is_current = current.is_some_and(|current| current.revision == record.revision);
        if is_current && self.is_whole(loaded).await? {
            return Ok((PublishOutcome::Current, Removals::default()));
        }
        // A damaged policy cannot be compared; the push replaces it.
        let before = self.current().await.ok().map(|before| load_documents(before.documents));
        let before = before.and_then(|before| before.specification);
        let removals = before.map(|before| Removals::between(&before, specification));
        self.push(record, &loaded.documents, expected).await?;
        Ok((PublishOutcome::Pushed, removals.unwrap_or_default()))
    }

    /// Whether etcd holds the complete current policy.
    ///
    /// The list of pushes only records what was pushed. Keys may have been deleted or overwritten since, and then a
    /// push of the same revision repairs them.
    async fn is_whole(&mut self, loaded: &Loaded) -> Result<bool, PolicyError> {
        match self.current().await {
            Ok(current) => Ok(*current.documents == *loaded.documents),
            Err(PolicyError::Nothing { .. } | PolicyError::Damaged(_)) => Ok(false),
            Err(error) => Err(error),
        }
    }
}
