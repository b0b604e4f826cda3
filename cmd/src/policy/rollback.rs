//! `ironmesh policy rollback`: puts a policy of before into force again.

use ironmesh_admin::{Client, RollbackRequest, RolledBack};
use ironmesh_catalog::PolicyRecord;
use ironmesh_config::{EtcdPolicy, PolicyPlace, load_documents};
use jiff::Timestamp;

use super::push::publish;
use super::who;
use crate::cli::{Output, RollbackArguments};
use crate::places::Places;

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
    publish(etcd, &loaded, &record, expected.as_deref(), &format!("revision {revision}"), output)
        .await
}

#[expect(clippy::print_stdout, reason = "what was done is this command's result")]
async fn of_folder(
    client: &Client,
    arguments: RollbackArguments,
    output: Output,
) -> anyhow::Result<()> {
    let (revision, message) = (arguments.revision, arguments.message);
    let request = RollbackRequest { revision, by: Some(who()), message };
    let done = client.roll_back(&request).await?;
    match output {
        Output::Json => println!("{}", serde_json::to_string_pretty(&done)?),
        Output::Text => println!("{}", told(&done)),
    }
    Ok(())
}

fn told(RolledBack { record, is_old, is_folder, folder }: &RolledBack) -> String {
    let revision = &record.revision;
    let state = if *is_old { "is in force already" } else { "is in force" };
    if *is_folder {
        return format!("revision {revision} {state}; it is what the policy folder holds");
    }
    let folder = folder.as_ref().map(|folder| format!(" ({folder})")).unwrap_or_default();
    format!(
        "revision {revision} {state}; what the policy folder holds{folder} is not, until it is something \
         else that passes"
    )
}
