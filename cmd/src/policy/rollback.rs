//! `ironmesh policy rollback`: activates an earlier policy revision.

use ironmesh_admin::Client;
use ironmesh_api::{RollbackRequest, RolledBack};
use ironmesh_catalog::PolicyRecord;
use ironmesh_command_line::{Output, RollbackArguments};
use ironmesh_config_language::load_documents;
use ironmesh_config_settings::PolicyLocation;
use ironmesh_config_sources::{EtcdPolicy, PublishOutcome};
use jiff::Timestamp;
use serde_json::json;

use super::check::{fail_if_rejected, views};
use super::current_user;
use super::push::print_outcome;
use super::wait::{self, Change};
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::outln;

/// Rolls back. With policy in etcd, pushes the old documents again; with a policy folder or releases, requests the
/// rollback from the control plane.
pub(crate) async fn rollback(arguments: RollbackArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    let client = resolved.client();
    match resolved.policy_source().await? {
        PolicyLocation::Folder(_) => request_rollback(&client, true, arguments, output).await,
        PolicyLocation::Releases => request_rollback(&client, false, arguments, output).await,
        PolicyLocation::Etcd(etcd) => {
            roll_back_etcd(&client, &mut EtcdPolicy::open(etcd)?, arguments, output).await
        }
    }
}

async fn roll_back_etcd(
    client: &Client,
    etcd: &mut EtcdPolicy,
    arguments: RollbackArguments,
    output: Output,
) -> anyhow::Result<()> {
    let kept = etcd.kept().await?;
    let old = etcd.policy(&arguments.revision).await?;
    let loaded = load_documents(old.documents);
    let revision = old.record.revision;
    let record = PolicyRecord {
        revision: revision.clone(),
        at: Timestamp::now(),
        commit: old.record.commit,
        by: Some(current_user()),
        message: Some(arguments.message.unwrap_or_else(|| format!("rollback to {revision}"))),
    };
    // A push by another user after `kept()` must fail this rollback.
    let current = kept.current.and_then(|at| kept.records.get(at));
    let current = current.map(|current| current.revision.to_string());
    let expected = arguments.expect.or(current);
    let (outcome, removals) = etcd.publish(&loaded, &record, expected.as_deref()).await?;
    if output == Output::Text {
        print_outcome(outcome, &removals, etcd, &loaded)?;
    }
    let accepted = loaded.specification.is_some();
    let waited =
        wait::after_change(client, &revision, arguments.wait, Change::pushed(accepted)).await;
    if output == Output::Json {
        // The same keys as for a policy folder.
        let (is_old, findings) = (outcome == PublishOutcome::Current, views(&loaded));
        outln!(
            "{:#}",
            json!({
                "accepted": accepted, "policy": record, "is_old": is_old, "findings": findings,
                "removals": removals, "wait": wait::answer(&waited),
            })
        )?;
    }
    fail_if_rejected(&loaded, &format!("revision {revision}"))?;
    wait::finish(waited, arguments.wait, output)
}

/// Requests the rollback from the control plane. `is_of_folder` says whether policy comes from a folder.
async fn request_rollback(
    client: &Client,
    is_of_folder: bool,
    arguments: RollbackArguments,
    output: Output,
) -> anyhow::Result<()> {
    let RollbackArguments { revision, expect, message, wait: option, .. } = arguments;
    let request = RollbackRequest { revision, expect, by: Some(current_user()), message };
    let done = client.roll_back(&request).await?;
    if output == Output::Text {
        outln!("{}", text(&done, is_of_folder))?;
    }
    let waited = wait::after_change(client, &done.policy.revision, option, Change::Activated).await;
    if output == Output::Json {
        let RolledBack { policy, is_old, findings, is_folder, folder, removals } = done;
        // The same keys as for policy in etcd.
        let mut answer = json!({
            "accepted": true, "policy": policy, "is_old": is_old, "findings": findings,
            "removals": removals, "wait": wait::answer(&waited),
        });
        if let Some(answer) = answer.as_object_mut().filter(|_| is_of_folder) {
            answer.insert("is_folder".to_owned(), json!(is_folder));
            answer.insert("folder".to_owned(), json!(folder));
        }
        outln!("{answer:#}")?;
    }
    wait::finish(waited, option, output)
}

/// The result for people.
fn text(done: &RolledBack, is_of_folder: bool) -> String {
    let RolledBack { policy, is_old, is_folder, folder, removals, .. } = done;
    let revision = &policy.revision;
    let state = if *is_old { "is already active" } else { "is active" };
    let note = match (is_of_folder, is_folder) {
        (false, _) => String::new(),
        (true, true) => "; it is the content of the policy folder".to_owned(),
        (true, false) => {
            let folder = folder.as_ref().map(|folder| format!(" ({folder})")).unwrap_or_default();
            format!(
                "; the content of the policy folder{folder} is not active until it changes to an accepted policy"
            )
        }
    };
    let removed = if removals.removed.is_empty() {
        String::new()
    } else {
        format!("\nit removes {removals}")
    };
    format!("revision {revision} {state}{note}{removed}")
}
