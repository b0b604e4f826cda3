//! `ironmesh proxy bootstrap --renew`: renews the certificate of a proxy on its machine.

use std::path::Path;

use ironmesh_agent::{RenewOutcome, RenewWhen};
use ironmesh_command_line::Output;
use jiff::Timestamp;
use serde_json::json;

use crate::agent::print_retry;
use ironmesh_terminal::stdout::outln;

/// Renews the certificate in `folder` if that is due, or with `force` at once.
pub(super) async fn renew(folder: &Path, force: bool, output: Output) -> anyhow::Result<()> {
    let when = if force { RenewWhen::Now } else { RenewWhen::Due };
    let outcome = ironmesh_agent::renew(folder, when, Timestamp::now(), &[], print_retry).await?;
    match (outcome, output) {
        (RenewOutcome::NotDue { id, due_at, expires_at }, Output::Text) => outln!(
            "proxy {id}: not due before {due_at:.0}; its certificate expires at {expires_at:.0}"
        )?,
        (RenewOutcome::NotDue { id, due_at, expires_at }, Output::Json) => {
            let report = json!({
                "id": id, "renewed": false, "due_at": due_at, "expires_at": expires_at,
            });
            outln!("{report:#}")?;
        }
        (RenewOutcome::Renewed { id, name, expires_at, has_new_roots }, Output::Text) => {
            let roots =
                if has_new_roots { "; the roots of the mesh were replaced, too" } else { "" };
            outln!("proxy {name} ({id}): renewed, expires at {expires_at:.0}{roots}")?;
        }
        (RenewOutcome::Renewed { id, name, expires_at, has_new_roots }, Output::Json) => {
            let report = json!({
                "id": id, "name": name, "renewed": true, "expires_at": expires_at, "new_roots": has_new_roots,
            });
            outln!("{report:#}")?;
        }
    }
    Ok(())
}
