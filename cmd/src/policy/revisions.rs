//! `ironmesh policy revisions`: the policies that can be rolled back to.

use ironmesh_admin::{Client, RevisionList, RevisionView};
use ironmesh_catalog::PolicyPin;
use ironmesh_config_settings::PolicyPlace;
use ironmesh_config_sources::EtcdPolicy;

use crate::cli::{Output, RevisionsArguments};
use crate::places::Places;
use crate::stdout::outln;

/// Lists what etcd keeps, or what the control plane keeps of its folder.
pub(crate) async fn revisions(
    arguments: &RevisionsArguments,
    output: Output,
) -> anyhow::Result<()> {
    let places = Places::find(&arguments.config)?;
    let client = Client::new(&places.admin_socket());
    let list = match places.policy {
        PolicyPlace::Folder(_) => client.policy_revisions().await?,
        PolicyPlace::Etcd(etcd) => in_etcd(&mut EtcdPolicy::open(etcd)?).await?,
    };
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        Output::Text => {
            outln!("  {:<12}  {:<20}  {:<18}  BY", "REVISION", "SINCE", "COMMIT")?;
            for revision in &list.revisions {
                outln!("{}", row(revision))?;
            }
            if let Some(pin) = &list.rolled_back {
                outln!("\n{}", words(pin))?;
            }
        }
    }
    Ok(())
}

async fn in_etcd(etcd: &mut EtcdPolicy) -> anyhow::Result<RevisionList> {
    let kept = etcd.kept().await?;
    let view = |(place, record)| RevisionView { record, current: kept.current == Some(place) };
    let revisions = kept.records.into_iter().enumerate().map(view).collect();
    Ok(RevisionList { revisions, rolled_back: None })
}

/// One revision in a line; the current one is marked.
fn row(view: &RevisionView) -> String {
    let record = &view.record;
    let mark = if view.current { '*' } else { ' ' };
    let at = format!("{:.0}", record.at);
    let (revision, commit) = (record.revision.to_string(), record.commit.as_deref().unwrap_or("-"));
    let by = record.by.as_deref().unwrap_or("-");
    let why = record.message.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    format!("{mark} {revision:<12}  {at:<20}  {commit:<18}  {by}{why}")
}

/// What must be known of a rollback that lasts.
fn words(pin: &PolicyPin) -> String {
    let by = pin.record.by.as_deref().unwrap_or("somebody");
    let (at, revision) = (pin.record.at, &pin.record.revision);
    match &pin.folder {
        Some(folder) => format!(
            "The policy folder is NOT in force: {by} rolled back from {folder} to {revision} at {at:.0}.\n\
             It is in force again when it holds something else that passes, or by `ironmesh policy \
             rollback {folder}`."
        ),
        None => format!(
            "The policy folder is NOT in force: {by} rolled back to {revision} at {at:.0}.\n\
             It is in force again when it holds something else that passes."
        ),
    }
}
