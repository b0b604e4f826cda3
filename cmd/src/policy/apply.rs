//! `ironmesh policy apply`: makes a policy folder a release of the control plane, if the policy is accepted.

use anyhow::bail;
use ironmesh_api::{Applied, ApplyRequest};
use ironmesh_catalog::{PolicyRecord, Removals};
use ironmesh_command_line::{ApplyArguments, Output};
use ironmesh_config_settings::PolicyLocation;
use ironmesh_config_sources::load_folder;
use jiff::Timestamp;
use serde_json::json;

use super::check::{counted, fail_if_rejected, print_findings, views};
use super::wait::{self, Change};
use super::{commit, current_user};
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{StdoutError, outln};

/// Applies a policy folder.
pub(super) async fn apply(arguments: ApplyArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    check_source(&resolved.policy_source().await?)?;
    let client = resolved.client();
    let loaded = load_folder(&arguments.path)?;
    let record = PolicyRecord {
        revision: loaded.revision.clone(),
        at: Timestamp::now(),
        commit: commit(&arguments.path, "applying").await,
        by: Some(current_user()),
        message: arguments.message,
    };
    let request = ApplyRequest {
        documents: loaded
            .documents
            .iter()
            .map(|d| (d.path.to_string(), d.text.to_string()))
            .collect(),
        commit: record.commit.clone(),
        by: record.by.clone(),
        message: record.message.clone(),
    };
    let accepted = loaded.specification.is_some();
    let applied = if accepted { Some(client.apply(&request).await?) } else { None };
    if output == Output::Text {
        print_findings(&loaded)?;
        if let Some(applied) = &applied {
            print_applied(applied, loaded.documents.len())?;
        }
    }
    let change = if accepted { Change::Activated } else { Change::Rejected };
    let waited = wait::after_change(&client, &loaded.revision, arguments.wait, change).await;
    if output == Output::Json {
        let is_new = applied.as_ref().is_some_and(|applied| !applied.is_old);
        let (policy, removals) = match applied {
            Some(applied) => (applied.policy, applied.removals),
            None => (record, Removals::default()),
        };
        outln!(
            "{:#}",
            json!({
                "accepted": accepted, "applied": is_new, "policy": policy, "findings": views(&loaded),
                "removals": removals, "wait": wait::answer(&waited),
            })
        )?;
    }
    fail_if_rejected(&loaded, &format!("`{}`", arguments.path.display()))?;
    wait::finish(waited, arguments.wait, output)
}

/// Fails unless the settings say that policy comes from releases.
fn check_source(policy: &PolicyLocation) -> anyhow::Result<()> {
    match policy {
        PolicyLocation::Releases => Ok(()),
        PolicyLocation::Folder(folder) => bail!(
            "policy comes from the folder `{}`, which the control plane follows by itself: edit the folder, or set \
             `policy.source = \"releases\"` in the settings and restart `ironmesh serve`",
            folder.display()
        ),
        PolicyLocation::Etcd(etcd) => bail!(
            "policy comes from etcd at {}: use `ironmesh policy push`",
            etcd.endpoints.join(", ")
        ),
    }
}

/// Prints the outcome for people.
fn print_applied(applied: &Applied, documents: usize) -> Result<(), StdoutError> {
    let Applied { policy, is_old, removals, .. } = applied;
    let revision = &policy.revision;
    if *is_old {
        return outln!("revision {revision} is already active: nothing to apply");
    }
    outln!("applied revision {revision}: {}", counted(documents, "document"))?;
    if removals.removed.is_empty() { Ok(()) } else { outln!("it removes {removals}") }
}
