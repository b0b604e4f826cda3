//! `ironmesh policy rollback`: activates an earlier policy revision.

use ironmesh_admin::{Client, RollbackRequest, RolledBack};
use ironmesh_catalog::PolicyRecord;
use ironmesh_config_language::load_documents;
use ironmesh_config_settings::PolicyLocation;
use ironmesh_config_sources::EtcdPolicy;
use jiff::Timestamp;
use serde_json::json;

use super::check::{fail_if_rejected, views};
use super::current_user;
use super::push::{Outcome, print_outcome, publish};
use super::wait::{self, Change};
use crate::cli::{Output, RollbackArguments};
use crate::resolved_settings::ResolvedSettings;
use crate::stdout::outln;

/// Rolls back. With policy in etcd, pushes the old documents again; with a policy folder or releases, requests the
/// rollback from the control plane.
pub(crate) async fn rollback(arguments: RollbackArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::load(&arguments.config)?;
    let client = resolved.client();
    match resolved.policy {
        PolicyLocation::Folder(_) => roll_back_folder(&client, arguments, output).await,
        PolicyLocation::Releases => of_releases(&client, arguments, output).await,
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
    let expected = current.map(|current| current.revision.to_string());
    let (outcome, removals) = publish(etcd, &loaded, &record, expected.as_deref()).await?;
    if output == Output::Text {
        print_outcome(outcome, &removals, etcd, &loaded)?;
    }
    let accepted = loaded.specification.is_some();
    let waited =
        wait::after_change(client, &revision, arguments.wait, Change::pushed(accepted)).await;
    if output == Output::Json {
        // The same keys as for a policy folder.
        let (is_old, findings) = (outcome == Outcome::Current, views(&loaded));
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

async fn of_releases(
    client: &Client,
    arguments: RollbackArguments,
    output: Output,
) -> anyhow::Result<()> {
    let (revision, message, option) = (arguments.revision, arguments.message, arguments.wait);
    let request = RollbackRequest { revision, by: Some(current_user()), message };
    let done = client.roll_back(&request).await?;
    if output == Output::Text {
        outln!("{}", activated(&done))?;
    }
    let waited = wait::after_change(client, &done.policy.revision, option, Change::Activated).await;
    if output == Output::Json {
        // The same keys as for policy in etcd.
        let RolledBack { policy, is_old, findings, removals, .. } = done;
        outln!(
            "{:#}",
            json!({
                "accepted": true, "policy": policy, "is_old": is_old, "findings": findings,
                "removals": removals, "wait": wait::answer(&waited),
            })
        )?;
    }
    wait::finish(waited, option, output)
}

async fn roll_back_folder(
    client: &Client,
    arguments: RollbackArguments,
    output: Output,
) -> anyhow::Result<()> {
    let (revision, message, option) = (arguments.revision, arguments.message, arguments.wait);
    let request = RollbackRequest { revision, by: Some(current_user()), message };
    let done = client.roll_back(&request).await?;
    if output == Output::Text {
        outln!("{}", text(&done))?;
    }
    let waited = wait::after_change(client, &done.policy.revision, option, Change::Activated).await;
    if output == Output::Json {
        let RolledBack { policy, is_old, findings, is_folder, folder, removals } = done;
        outln!(
            "{:#}",
            json!({
                "accepted": true, "policy": policy, "is_old": is_old, "findings": findings,
                "is_folder": is_folder, "folder": folder, "removals": removals,
                "wait": wait::answer(&waited),
            })
        )?;
    }
    wait::finish(waited, option, output)
}

/// The result for people, with releases.
fn activated(done: &RolledBack) -> String {
    let RolledBack { policy, is_old, removals, .. } = done;
    let revision = &policy.revision;
    match (is_old, removals.removed.is_empty()) {
        (true, _) => format!("revision {revision} is already active"),
        (false, true) => format!("revision {revision} is active"),
        (false, false) => format!("revision {revision} is active\nit removes {removals}"),
    }
}

/// The result for people, with a policy folder.
fn text(done: &RolledBack) -> String {
    let RolledBack { policy, is_old, is_folder, folder, removals, .. } = done;
    let removed = if removals.removed.is_empty() {
        String::new()
    } else {
        format!("\nit removes {removals}")
    };
    let revision = &policy.revision;
    let state = if *is_old { "is already active" } else { "is active" };
    if *is_folder {
        return format!(
            "revision {revision} {state}; it is the content of the policy folder{removed}"
        );
    }
    let folder = folder.as_ref().map(|folder| format!(" ({folder})")).unwrap_or_default();
    format!(
        "revision {revision} {state}; the content of the policy folder{folder} is not active until it changes to an \
         accepted policy{removed}"
    )
}
