//! Reads pushes: the current one, the records of all, and the documents of one.

use ironmesh_catalog::PolicyRecord;
use ironmesh_etcd::{KeyValue, Session, SessionError};

use super::error::{DamagedPush, ReadError};
use super::layout::{Layout, Manifest};
use super::{EtcdPolicy, PolicyError, Pushed};

/// The policies that etcd retains.
#[derive(Debug, Clone)]
pub struct RetainedPolicies {
    /// The pushes, the newest first.
    pub records: Vec<PolicyRecord>,
    /// The index of the current push in the list; none if there is none, or if it is damaged.
    pub current: Option<usize>,
}

impl EtcdPolicy {
    /// Reads the current policy.
    pub async fn current(&mut self) -> Result<Pushed, PolicyError> {
        let pushed = self
            .insist(async |session, layout| {
                let (entry, at) = session.get(&layout.current(), None).await?;
                let Some(entry) = entry else { return Ok(None) };
                let manifest = manifest(&entry).map_err(ReadError::Damaged)?;
                documents(session, layout, manifest, at).await.map(Some)
            })
            .await?;
        pushed.ok_or_else(|| PolicyError::Nothing { prefix: self.layout.prefix().to_owned() })
    }

    /// Reads the records of the retained policies.
    pub async fn kept(&mut self) -> Result<RetainedPolicies, PolicyError> {
        self.insist(async |session, layout| {
            let (current, _) = session.get(&layout.current(), None).await?;
            let current = current.and_then(|entry| Manifest::decode(&entry.value).ok());
            let (manifests, _) = manifests(session, layout).await?;
            let is_current = |manifest: &Manifest| {
                current.as_ref().is_some_and(|current| current.push == manifest.push)
            };
            let current = manifests.iter().position(is_current);
            let records = manifests.into_iter().map(|manifest| manifest.record).collect();
            Ok(RetainedPolicies { records, current })
        })
        .await
    }

    /// Reads the last policy whose revision is or begins with `revision`.
    pub async fn policy(&mut self, revision: &str) -> Result<Pushed, PolicyError> {
        self.insist(async |session, layout| {
            let (mut manifests, at) = manifests(session, layout).await?;
            manifests.retain(|manifest| manifest.record.revision.0.starts_with(revision));
            let mut revisions: Vec<_> =
                manifests.iter().map(|manifest| manifest.record.revision.to_string()).collect();
            revisions.sort();
            revisions.dedup();
            if revisions.len() > 1 {
                return Ok(Err(PolicyError::SeveralRevisions(revisions.join(", "))));
            }
            let Some(newest) = manifests.into_iter().next() else {
                return Ok(Err(PolicyError::UnknownRevision(revision.to_owned())));
            };
            documents(session, layout, newest, at).await.map(Ok)
        })
        .await?
    }
}

/// The manifest in an entry.
pub(super) fn manifest(entry: &KeyValue) -> Result<Manifest, DamagedPush> {
    Manifest::decode(&entry.value)
        .map_err(|problem| DamagedPush { key: entry.key.clone(), problem })
}

/// The manifests of all retained pushes, the newest first, and the revision of etcd at which they were read.
/// Damaged manifests are skipped: they name no documents.
pub(super) async fn manifests(
    session: &mut Session,
    layout: &Layout,
) -> Result<(Vec<Manifest>, i64), SessionError> {
    let (entries, at) = session.list(&layout.pushes()).await?;
    let manifests = entries.iter().filter_map(|entry| Manifest::decode(&entry.value).ok());
    Ok((manifests.collect(), at))
}

/// All documents of a push at the revision `at` of etcd: later removals have no effect.
pub(super) async fn documents(
    session: &mut Session,
    layout: &Layout,
    manifest: Manifest,
    at: i64,
) -> Result<Pushed, ReadError> {
    let damaged = |problem: String| {
        let key = layout.chunks(&manifest.push);
        ReadError::Damaged(DamagedPush { key: key.trim_end_matches('/').to_owned(), problem })
    };
    let mut bytes = Vec::new();
    for number in 0..manifest.chunks {
        let (chunk, _) = session.get(&layout.chunk(&manifest.push, number), Some(at)).await?;
        let chunk = chunk.ok_or_else(|| damaged(format!("lacks the chunk {number}")))?;
        bytes.extend_from_slice(&chunk.value);
    }
    let documents = manifest.documents(&bytes).map_err(damaged)?;
    Ok(Pushed { record: manifest.record, documents })
}
