//! `ironmesh policy rollback`: puts a policy of before into force again.

use ironmesh_admin::{Client, RollbackRequest, RolledBack};
use ironmesh_catalog::PolicyRecord;
use ironmesh_config_language::load_documents;
use ironmesh_config_settings::PolicyPlace;
use ironmesh_config_sources::EtcdPolicy;
use jiff::Timestamp;
use serde_json::json;

use super::check::{refused, views};
use super::push::{Outcome, publish, tell};
use super::who;
use crate::cli::{Output, RollbackArguments};
use crate::places::Places;
use crate::stdout::outln;

/// In etcd, pushes the old documents again. Of a folder, asks the control plane to go by them.
pub(crate) async fn rollback(arguments: RollbackArguments, output: Output) -> anyhow::Result<()> {
    let places = Places::find(&arguments.config)?;
    let client = Client::new(&places.admin_socket());
    match places.policy {
        PolicyPlace::Folder(_) => of_folder(&client, arguments, output).await,
        PolicyPlace::Etcd(etcd) => in_etcd(&mut EtcdPolicy::open(etcd)?, arguments, output).await,
    }
}

async fn in_etcd(
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
        by: Some(who()),
        message: Some(arguments.message.unwrap_or_else(|| format!("rollback to {revision}"))),
    };
    // What is pushed between the look and the push is not rolled back unseen.
    let current = kept.current.and_then(|at| kept.records.get(at));
    let expected = current.map(|current| current.revision.to_string());
    let (outcome, removals) = publish(etcd, &loaded, &record, expected.as_deref()).await?;
    match output {
        Output::Json => {
            // The keys are those of a folder's.
            let (accepted, is_old) = (loaded.specification.is_some(), outcome == Outcome::Current);
            let findings = views(&loaded);
            outln!(
                "{:#}",
                json!({
                    "accepted": accepted, "policy": record, "is_old": is_old, "findings": findings,
                    "removals": removals,
                })
            )?;
        }
        Output::Text => tell(outcome, &removals, etcd, &loaded)?,
    }
    refused(&loaded, &format!("revision {revision}"))
}

async fn of_folder(
    client: &Client,
    arguments: RollbackArguments,
    output: Output,
) -> anyhow::Result<()> {
    let (revision, message) = (arguments.revision, arguments.message);
    let request = RollbackRequest { revision, by: Some(who()), message };
    let done = client.roll_back(&request).await?;
    match output {
        Output::Json => {
            let RolledBack { policy, is_old, findings, is_folder, folder, removals } = done;
            outln!(
                "{:#}",
                json!({
                    "accepted": true, "policy": policy, "is_old": is_old, "findings": findings,
                    "is_folder": is_folder, "folder": folder, "removals": removals,
                })
            )?;
        }
        Output::Text => outln!("{}", told(&done))?,
    }
    Ok(())
}

fn told(done: &RolledBack) -> String {
    let RolledBack { policy, is_old, is_folder, folder, removals, .. } = done;
    let removed = if removals.removed.is_empty() {
        String::new()
    } else {
        format!("\nit removes {removals}")
    };
    let revision = &policy.revision;
    let state = if *is_old { "is in force already" } else { "is in force" };
    if *is_folder {
        return format!("revision {revision} {state}; it is what the policy folder holds{removed}");
    }
    let folder = folder.as_ref().map(|folder| format!(" ({folder})")).unwrap_or_default();
    format!(
        "revision {revision} {state}; what the policy folder holds{folder} is not, until it is something \
         else that passes{removed}"
    )
}
