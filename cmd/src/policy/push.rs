//! `ironmesh policy push`: pushes a policy folder to etcd, if the policy is accepted.

use ironmesh_catalog::{PolicyRecord, Removals};
use ironmesh_command_line::{Output, PushArguments};
use ironmesh_config_language::Loaded;
use ironmesh_config_sources::{EtcdPolicy, PublishOutcome, load_folder};
use jiff::Timestamp;
use serde_json::json;

use super::check::{counted, fail_if_rejected, print_findings, views};
use super::wait::{self, Change};
use super::{commit, current_user, open_etcd};
use crate::exit::UsageError;
use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{StdoutError, outln};

/// Pushes a policy folder.
pub(crate) async fn push(arguments: PushArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    if resolved.is_remote() {
        let error = "policy is pushed to the etcd of this machine's settings, and not to that of a context: leave out the \
                     context, or use `--context local`";
        return Err(UsageError(error.to_owned()).into());
    }
    let client = resolved.client();
    let mut etcd = open_etcd(&arguments.config.settings)?;
    let loaded = load_folder(&arguments.path)?;
    let what = format!("`{}`", arguments.path.display());
    let record = PolicyRecord {
        revision: loaded.revision.clone(),
        at: Timestamp::now(),
        commit: commit(&arguments.path, "pushing").await,
        by: Some(current_user()),
        message: arguments.message,
    };
    let (outcome, removals) = etcd.publish(&loaded, &record, arguments.expect.as_deref()).await?;
    if output == Output::Text {
        print_outcome(outcome, &removals, &etcd, &loaded)?;
    }
    let accepted = loaded.specification.is_some();
    let waited =
        wait::after_change(&client, &record.revision, arguments.wait, Change::pushed(accepted))
            .await;
    if output == Output::Json {
        let (pushed, findings) = (outcome == PublishOutcome::Pushed, views(&loaded));
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

/// Prints the outcome for people.
pub(super) fn print_outcome(
    outcome: PublishOutcome,
    removals: &Removals,
    etcd: &EtcdPolicy,
    loaded: &Loaded,
) -> Result<(), StdoutError> {
    print_findings(loaded)?;
    let revision = &loaded.revision;
    match outcome {
        PublishOutcome::Rejected => Ok(()),
        PublishOutcome::Current => {
            outln!("revision {revision} is already current: nothing to push")
        }
        PublishOutcome::Pushed => {
            let documents = counted(loaded.documents.len(), "document");
            outln!("pushed revision {revision}: {documents}, to {}", etcd.name())?;
            if removals.removed.is_empty() { Ok(()) } else { outln!("it removes {removals}") }
        }
    }
}
