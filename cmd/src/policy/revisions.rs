//! `ironmesh policy revisions`: the revisions that a rollback can activate.

use ironmesh_api::{RevisionList, RevisionView};
use ironmesh_catalog::PolicyPin;
use ironmesh_command_line::{Output, RevisionsArguments};
use ironmesh_config_settings::PolicyLocation;
use ironmesh_config_sources::EtcdPolicy;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::outln;

/// Lists the revisions that etcd keeps, or that the control plane keeps of its folder or as releases.
pub(crate) async fn revisions(
    arguments: &RevisionsArguments,
    output: Output,
) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    let client = resolved.client();
    let list = match resolved.policy_source().await? {
        PolicyLocation::Folder(_) | PolicyLocation::Releases => client.policy_revisions().await?,
        PolicyLocation::Etcd(etcd) => etcd_revisions(&mut EtcdPolicy::open(etcd)?).await?,
    };
    match output {
        Output::Json => outln!("{}", serde_json::to_string_pretty(&list)?)?,
        Output::Text => {
            outln!("  {:<12}  {:<20}  {:<18}  BY", "REVISION", "SINCE", "COMMIT")?;
            for revision in &list.revisions {
                outln!("{}", row(revision))?;
            }
            if let Some(pin) = &list.rolled_back {
                outln!("\n{}", rollback_text(pin))?;
            }
        }
    }
    Ok(())
}

async fn etcd_revisions(etcd: &mut EtcdPolicy) -> anyhow::Result<RevisionList> {
    let kept = etcd.kept().await?;
    let view = |(index, record)| RevisionView { record, current: kept.current == Some(index) };
    let revisions = kept.records.into_iter().enumerate().map(view).collect();
    Ok(RevisionList { revisions, rolled_back: None })
}

/// The row of a revision. An asterisk marks the current one.
fn row(view: &RevisionView) -> String {
    let record = &view.record;
    let mark = if view.current { '*' } else { ' ' };
    let at = format!("{:.0}", record.at);
    let (revision, commit) = (record.revision.to_string(), record.commit.as_deref().unwrap_or("-"));
    let by = record.by.as_deref().unwrap_or("-");
    let why = record.message.as_ref().map(|text| format!(": {text}")).unwrap_or_default();
    format!("{mark} {revision:<12}  {at:<20}  {commit:<18}  {by}{why}")
}

/// The note about an active rollback.
fn rollback_text(pin: &PolicyPin) -> String {
    let by = pin.record.by.as_deref().unwrap_or("an unknown user");
    let (at, revision) = (pin.record.at, &pin.record.revision);
    match &pin.folder {
        Some(folder) => format!(
            "The policy folder is NOT active: {by} rolled back from {folder} to {revision} at {at:.0}.\n\
             It becomes active again when it changes to an accepted policy, or by `ironmesh policy rollback \
             {folder}`."
        ),
        None => format!(
            "The policy folder is NOT active: {by} rolled back to {revision} at {at:.0}.\n\
             It becomes active again when it changes to an accepted policy."
        ),
    }
}
