//! `ironmesh policy push`: pushes a policy folder to etcd, if the policy is accepted.

use ironmesh_catalog::{PolicyRecord, Removals};
use ironmesh_config_language::{Loaded, load_documents};
use ironmesh_config_sources::{EtcdPolicy, PolicyError, load_folder};
use jiff::Timestamp;
use serde_json::json;

use super::check::{counted, fail_if_rejected, print_findings, views};
use super::wait::{self, Change};
use super::{commit, current_user, open_etcd};
use crate::cli::{Output, PushArguments};
use crate::resolved_settings::ResolvedSettings;
use crate::stdout::{StdoutError, outln};

/// Pushes a policy folder.
pub(crate) async fn push(arguments: PushArguments, output: Output) -> anyhow::Result<()> {
    let client = ResolvedSettings::load(&arguments.config)?.client();
    let mut etcd = open_etcd(&arguments.config)?;
    let loaded = load_folder(&arguments.path)?;
    let what = format!("`{}`", arguments.path.display());
    let record = PolicyRecord {
        revision: loaded.revision.clone(),
        at: Timestamp::now(),
        commit: commit(&arguments.path, "pushing").await,
        by: Some(current_user()),
        message: arguments.message,
    };
    let (outcome, removals) =
        publish(&mut etcd, &loaded, &record, arguments.expect.as_deref()).await?;
    if output == Output::Text {
        print_outcome(outcome, &removals, &etcd, &loaded)?;
    }
    let accepted = loaded.specification.is_some();
    let waited =
        wait::after_change(&client, &record.revision, arguments.wait, Change::pushed(accepted))
            .await;
    if output == Output::Json {
        let (pushed, findings) = (outcome == Outcome::Pushed, views(&loaded));
        outln!(
            "{:#}",
            json!({
                "accepted": accepted, "pushed": pushed, "policy": record, "findings": findings,
                "removals": removals, "wait": wait::answer(&waited),
            })
        )?;
    }
    fail_if_rejected(&loaded, &what)?;
    wait::finish(waited, arguments.wait, output)
}

/// The outcome of a push.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Outcome {
    /// The policy has errors.
    Rejected,
    /// The revision is already the current one.
    Current,
    /// The revision is now the current one.
    Pushed,
}

/// Pushes a loaded policy if it is accepted and not current. Also returns the objects that it removes.
pub(super) async fn publish(
    etcd: &mut EtcdPolicy,
    loaded: &Loaded,
    record: &PolicyRecord,
    expected: Option<&str>,
) -> anyhow::Result<(Outcome, Removals)> {
    let Some(specification) = &loaded.specification else {
        return Ok((Outcome::Rejected, Removals::default()));
    };
    let kept = etcd.kept().await?;
    let current = kept.current.and_then(|at| kept.records.get(at));
    let is_current = current.is_some_and(|current| current.revision == record.revision);
    if is_current && is_whole(etcd, loaded).await? {
        return Ok((Outcome::Current, Removals::default()));
    }
    // A damaged policy cannot be compared; the push replaces it.
    let before = etcd.current().await.ok().map(|before| load_documents(before.documents));
    let before = before.and_then(|before| before.specification);
    let removals = before.map(|before| Removals::between(&before, specification));
    etcd.push(record, &loaded.documents, expected).await?;
    Ok((Outcome::Pushed, removals.unwrap_or_default()))
}

/// Prints the outcome for people.
pub(super) fn print_outcome(
    outcome: Outcome,
    removals: &Removals,
    etcd: &EtcdPolicy,
    loaded: &Loaded,
) -> Result<(), StdoutError> {
    print_findings(loaded)?;
    let revision = &loaded.revision;
    match outcome {
        Outcome::Rejected => Ok(()),
        Outcome::Current => outln!("revision {revision} is already current: nothing to push"),
        Outcome::Pushed => {
            let documents = counted(loaded.documents.len(), "document");
            outln!("pushed revision {revision}: {documents}, to {}", etcd.name())?;
            if removals.removed.is_empty() { Ok(()) } else { outln!("it removes {removals}") }
        }
    }
}

/// Whether etcd holds the complete current policy.
///
/// The list of pushes only records what was pushed. Keys may have been deleted or overwritten since, and then a push
/// of the same revision repairs them.
async fn is_whole(etcd: &mut EtcdPolicy, loaded: &Loaded) -> Result<bool, PolicyError> {
    match etcd.current().await {
        Ok(current) => Ok(*current.documents == *loaded.documents),
        Err(PolicyError::Nothing { .. } | PolicyError::Damaged(_)) => Ok(false),
        Err(error) => Err(error),
    }
}
