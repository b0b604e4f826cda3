//! `ironmesh status`: the problems of the mesh first, then a summary.

mod connection;

use ironmesh_admin::ClientError;
use ironmesh_api::{FindingList, FindingView, ProxyQuery};
use ironmesh_command_line::{Output, StatusArguments};
use ironmesh_views::status::{Status, by_state};
use jiff::Timestamp;
use serde_json::json;

use crate::resolved_settings::ResolvedSettings;
use ironmesh_terminal::stdout::{out, outln};

/// Prints the status of the mesh. Fails if there are problems.
pub(crate) async fn status(arguments: &StatusArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    let (client, readiness, socket_gone) = connection::open(&resolved).await?;
    let proxies = client.proxies(ProxyQuery::default()).await?.proxies;
    let audit = client.audit().await?;
    let findings = match client.findings().await {
        // A control plane of an earlier version has no such list, and no silences.
        Err(ClientError::Rejected(_)) => FindingList::default(),
        findings => findings?,
    }
    .findings;
    let now = Timestamp::now();
    let status = Status::new(&readiness, &proxies, &audit, &findings, socket_gone, now);
    match output {
        Output::Json => {
            let Status { wrong, notes, .. } = &status;
            let is_problem = |finding: &&FindingView| finding.is_problem();
            let problems: Vec<_> = findings.iter().filter(is_problem).collect();
            let proxies = by_state(&proxies);
            outln!(
                "{:#}",
                json!({ "wrong": wrong, "notes": notes, "problems": problems, "control_plane": readiness, "proxies": proxies, "audit": audit })
            )?;
        }
        Output::Text => out!("{}", status.text(&readiness, &proxies))?,
    }
    match status.wrong.len() {
        0 => Ok(()),
        1 => anyhow::bail!("one thing is wrong"),
        several => anyhow::bail!("{several} things are wrong"),
    }
}
