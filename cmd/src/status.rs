//! `ironmesh status`: the problems of the mesh first, then a summary.

mod connection;

use ironmesh_admin::ClientError;
use ironmesh_api::{AuditView, FindingList, FindingView, ProxyQuery, ProxyView, Readiness};
use ironmesh_command_line::{Output, StatusArguments};
use ironmesh_views::status::{Status, by_state};
use jiff::Timestamp;
use serde_json::{Value, json};

use crate::resolved_settings::ResolvedSettings;
use crate::watch::{Watched, watch};
use ironmesh_terminal::stdout::{out, outln};

/// Prints the status of the mesh. Fails if there are problems.
pub(crate) async fn status(arguments: &StatusArguments, output: Output) -> anyhow::Result<()> {
    let resolved = ResolvedSettings::connect(&arguments.config)?;
    let mesh = Mesh { resolved };
    if arguments.watch.watch {
        return watch(&mesh, output).await;
    }
    let state = mesh.read().await?;
    let now = Timestamp::now();
    match output {
        Output::Json => outln!("{:#}", mesh.json(&state, now)?)?,
        Output::Text => out!("{}", mesh.text(&state, now))?,
    }
    match state.status(now).wrong.len() {
        0 => Ok(()),
        1 => anyhow::bail!("one thing is wrong"),
        several => anyhow::bail!("{several} things are wrong"),
    }
}

/// The mesh of the chosen control plane.
struct Mesh {
    resolved: ResolvedSettings,
}

/// What the status follows from.
struct MeshState {
    readiness: Readiness,
    proxies: Vec<ProxyView>,
    audit: AuditView,
    findings: Vec<FindingView>,
    /// The problem of a missing socket.
    socket_gone: Option<String>,
}

impl MeshState {
    fn status(&self, now: Timestamp) -> Status {
        let Self { readiness, proxies, audit, findings, socket_gone } = self;
        Status::new(readiness, proxies, audit, findings, socket_gone.clone(), now)
    }
}

impl Watched for Mesh {
    type State = MeshState;

    async fn read(&self) -> anyhow::Result<MeshState> {
        let (client, readiness, socket_gone) = connection::open(&self.resolved).await?;
        let proxies = client.proxies(ProxyQuery::default()).await?.proxies;
        let audit = client.audit().await?;
        let findings = match client.findings().await {
            // A control plane of an earlier version has no such list, and no silences.
            Err(ClientError::Rejected(_)) => FindingList::default(),
            findings => findings?,
        }
        .findings;
        Ok(MeshState { readiness, proxies, audit, findings, socket_gone })
    }

    fn json(&self, state: &MeshState, now: Timestamp) -> serde_json::Result<Value> {
        let Status { wrong, notes, .. } = &state.status(now);
        let MeshState { readiness, proxies, audit, findings, .. } = state;
        let problems = findings.iter().filter(|finding| finding.is_problem());
        let problems: Vec<_> = problems.collect();
        let proxies = by_state(proxies);
        Ok(
            json!({ "wrong": wrong, "notes": notes, "problems": problems, "control_plane": readiness, "proxies": proxies, "audit": audit }),
        )
    }

    fn text(&self, state: &MeshState, now: Timestamp) -> String {
        state.status(now).text(&state.readiness, &state.proxies)
    }

    fn identity(&self, state: &MeshState, now: Timestamp) -> serde_json::Result<Value> {
        let mut json = self.json(state, now)?;
        // Their texts have ages.
        let Status { wrong, notes, .. } = state.status(now);
        if let Some(keys) = json.as_object_mut() {
            keys.insert("wrong".to_owned(), wrong.len().into());
            keys.insert("notes".to_owned(), notes.len().into());
        }
        Ok(json)
    }
}
