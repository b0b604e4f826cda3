//! `ironmesh policy push`: makes a folder the policy in etcd, if it passes.

use ironmesh_catalog::{PolicyRecord, Removals};
use ironmesh_config_language::{Loaded, load_documents};
use ironmesh_config_sources::{EtcdPolicy, PolicyError, commit_of, load_folder};
use jiff::Timestamp;
use serde_json::json;

use super::check::{counted, print_findings, refused, views};
use super::{in_etcd, who};
use crate::cli::{Output, PushArguments};
use crate::stdout::{Unwritten, outln};

/// Pushes a policy folder.
#[expect(clippy::print_stderr, reason = "what is not a result, and does not hinder")]
pub(crate) async fn push(arguments: PushArguments, output: Output) -> anyhow::Result<()> {
    let mut etcd = in_etcd(&arguments.config)?;
    let loaded = load_folder(&arguments.path)?;
    let what = format!("`{}`", arguments.path.display());
    let commit = match commit_of(&arguments.path).await {
        Ok(commit) => commit,
        Err(error) => {
            eprintln!("ironmesh: the revision is pushed without its commit: {error}");
            None
        }
    };
    let record = PolicyRecord {
        revision: loaded.revision.clone(),
        at: Timestamp::now(),
        commit,
        by: Some(who()),
        message: arguments.message,
    };
    let (outcome, removals) =
        publish(&mut etcd, &loaded, &record, arguments.expect.as_deref()).await?;
    match output {
        Output::Json => {
            let accepted = loaded.specification.is_some();
            let (pushed, findings) = (outcome == Outcome::Pushed, views(&loaded));
            outln!(
                "{:#}",
                json!({
                    "accepted": accepted, "pushed": pushed, "policy": record, "findings": findings,
                    "removals": removals,
                })
            )?;
        }
        Output::Text => tell(outcome, &removals, &etcd, &loaded)?,
    }
    refused(&loaded, &what)
}

/// What comes of pushing a policy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// It does not pass.
    Refused,
    /// It is current already.
    Current,
    Pushed,
}

/// Pushes what was loaded, if it passes and is not current already. Also returns the objects that it removes.
pub(super) async fn publish(
    etcd: &mut EtcdPolicy,
    loaded: &Loaded,
    record: &PolicyRecord,
    expected: Option<&str>,
) -> anyhow::Result<(Outcome, Removals)> {
    let Some(specification) = &loaded.specification else {
        return Ok((Outcome::Refused, Removals::default()));
    };
    let kept = etcd.kept().await?;
    let current = kept.current.and_then(|at| kept.records.get(at));
    let is_current = current.is_some_and(|current| current.revision == record.revision);
    if is_current && is_whole(etcd, loaded).await? {
        return Ok((Outcome::Current, Removals::default()));
    }
    // What is damaged cannot be compared with, and a push replaces it.
    let before = etcd.current().await.ok().map(|before| load_documents(before.documents));
    let before = before.and_then(|before| before.specification);
    let removals = before.map(|before| Removals::between(&before, specification));
    etcd.push(record, &loaded.documents, expected).await?;
    Ok((Outcome::Pushed, removals.unwrap_or_default()))
}

/// Prints what came of it, for people.
pub(super) fn tell(
    outcome: Outcome,
    removals: &Removals,
    etcd: &EtcdPolicy,
    loaded: &Loaded,
) -> Result<(), Unwritten> {
    print_findings(loaded)?;
    let revision = &loaded.revision;
    match outcome {
        Outcome::Refused => Ok(()),
        Outcome::Current => outln!("revision {revision} is current already: nothing to push"),
        Outcome::Pushed => {
            let documents = counted(loaded.documents.len(), "document");
            outln!("pushed revision {revision}: {documents}, to {}", etcd.name())?;
            if removals.removed.is_empty() { Ok(()) } else { outln!("it removes {removals}") }
        }
    }
}

/// Whether etcd holds all of what is current. The list of pushes says only what was pushed: a part of it may
/// have been taken out or written over since, and then a push of the same mends it.
async fn is_whole(etcd: &mut EtcdPolicy, loaded: &Loaded) -> Result<bool, PolicyError> {
    match etcd.current().await {
        Ok(current) => Ok(*current.documents == *loaded.documents),
        Err(PolicyError::Nothing { .. } | PolicyError::Damaged(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
