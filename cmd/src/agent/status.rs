//! `ironmesh agent status`: the status of this machine, problems first.

use std::fmt::Write as _;

use ironmesh_agent::{AgentPhase, AgentSettings, MachineStatus};
use ironmesh_enrollment::ProxySync;
use jiff::Timestamp;

use crate::cli::{AgentConfigArgument, Output};
use crate::stdout::{out, outln};

/// Prints the status. Fails if there are problems.
pub(crate) async fn status(arguments: &AgentConfigArgument, output: Output) -> anyhow::Result<()> {
    let settings = AgentSettings::read(&arguments.config)?;
    let status = MachineStatus::collect(&settings, Timestamp::now()).await;
    match output {
        Output::Json => outln!("{:#}", serde_json::to_value(&status)?)?,
        Output::Text => out!("{}", text(&status))?,
    }
    match status.problems.len() {
        0 => Ok(()),
        1 => anyhow::bail!("one thing is wrong"),
        several => anyhow::bail!("{several} things are wrong"),
    }
}

fn text(status: &MachineStatus) -> String {
    let mut text = String::new();
    // (Writing to a string does not fail.)
    for problem in &status.problems {
        let _ = writeln!(text, "problem: {problem}");
    }
    if !status.problems.is_empty() {
        text.push('\n');
    }
    let _ = writeln!(text, "folder       {}", status.folder.display());
    if let Some(proxy) = &status.proxy {
        let _ = writeln!(text, "proxy        {}", proxy.id);
        let _ = writeln!(text, "service      {}", proxy.service);
        let _ = writeln!(
            text,
            "certificate  expires {:.0}, renewed from {:.0}",
            proxy.expires_at, proxy.due_at
        );
    }
    match &status.agent {
        None => text.push_str("agent        does not run\n"),
        Some(agent) => {
            let phase = match agent.phase {
                AgentPhase::Joining => "enrolls this machine",
                AgentPhase::WaitingForToken => "waits for a token",
                AgentPhase::Enrolled => "runs",
                AgentPhase::Revoked => "runs; the proxy is revoked",
            };
            let _ = writeln!(text, "agent        {phase}; {} renewals", agent.renewals);
            for error in &agent.errors {
                let _ =
                    writeln!(text, "  {:.0} ({} times): {}", error.at, error.count, error.error);
            }
        }
    }
    if let Some(known) = &status.control_plane {
        let sync = match known.sync {
            ProxySync::Synced => "synced",
            ProxySync::Updating => "updating",
            ProxySync::Nacked => "NACK",
            ProxySync::Held => "held for order",
            ProxySync::Disconnected => "disconnected",
            ProxySync::Unknown => "unknown",
        };
        let revision = known.acked_revision.as_deref().unwrap_or("none");
        let _ = writeln!(text, "sync         {sync}, revision {revision}, as {}", known.name);
    }
    match &status.envoy {
        None => text.push_str("envoy        does not run\n"),
        Some(envoy) => {
            let connection = if envoy.is_connected { "connected" } else { "not connected" };
            let _ = writeln!(
                text,
                "envoy        {} {}, epoch {}; xDS {connection}",
                envoy.version, envoy.state, envoy.epoch
            );
            for certificate in &envoy.certificates {
                let _ =
                    writeln!(text, "  {} expires {:.0}", certificate.uri, certificate.expires_at);
            }
        }
    }
    text
}
