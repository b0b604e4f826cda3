//! The status of a machine for people.

use std::fmt;

use ironmesh_catalog::text::escape_line;
use ironmesh_enrollment::ProxySync;

use super::MachineStatus;
use crate::activity::{AgentPhase, ProbeActivity};

impl fmt::Display for MachineStatus {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for problem in &self.problems {
            writeln!(f, "problem: {problem}")?;
        }
        if !self.problems.is_empty() {
            writeln!(f)?;
        }
        writeln!(f, "folder       {}", self.folder.display())?;
        if let Some(proxy) = &self.proxy {
            writeln!(f, "proxy        {}", proxy.id)?;
            writeln!(f, "service      {}", proxy.service)?;
            let (due_at, expires_at) = (proxy.due_at, proxy.expires_at);
            writeln!(f, "certificate  expires {expires_at:.0}, renewal due {due_at:.0}")?;
        }
        self.write_agent(f)?;
        self.write_probes(f)?;
        if let Some(known) = &self.control_plane {
            let sync = match known.sync {
                ProxySync::Synced => "synced",
                ProxySync::Updating => "updating",
                ProxySync::Nacked => "NACK",
                ProxySync::Held => "held for order",
                ProxySync::Disconnected => "disconnected",
                ProxySync::OtherControlPlane => "connected to a different control plane",
                ProxySync::Unknown => "unknown",
            };
            let revision = known.acked_revision.as_deref().unwrap_or("none");
            writeln!(f, "sync         {sync}, revision {revision}, as {}", known.name)?;
        }
        self.write_envoy(f)
    }
}

impl MachineStatus {
    fn write_agent(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Some(agent) = &self.agent else { return writeln!(f, "agent        does not run") };
        let phase = match agent.phase {
            AgentPhase::Joining => "enrolls this machine",
            AgentPhase::WaitingForToken => "waits for a token",
            AgentPhase::Enrolled => "runs",
            AgentPhase::Revoked => "runs; the proxy is revoked",
        };
        writeln!(f, "agent        {phase}; {} renewals", agent.renewals)?;
        agent.service_certificates.iter().try_for_each(|one| {
            let (secret, account, expires_at) = (&one.secret, &one.account, one.expires_at);
            writeln!(f, "  {secret} for {account} expires {expires_at:.0}")
        })?;
        if agent.secret_nacks > 0 {
            writeln!(f, "  Envoy NACKed {} service certificates: see its log", agent.secret_nacks)?;
        }
        let earlier = if agent.is_failing { "" } else { "earlier, " };
        agent.errors.iter().try_for_each(|error| {
            writeln!(f, "  {earlier}{:.0} ({} times): {}", error.at, error.count, error.error)
        })
    }

    fn write_probes(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.probes.iter().try_for_each(|probe| {
            let ProbeActivity { service, port, kind, state, since, .. } = probe;
            write!(f, "probe        {service} port {port} {kind}: {state} since {since:.0}")?;
            match &probe.last_error {
                Some(error) => writeln!(f, "; last error: {}", escape_line(error)),
                None => writeln!(f),
            }
        })
    }

    fn write_envoy(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.envoy {
            None => writeln!(f, "envoy        does not run")?,
            Some(envoy) => {
                let connection = if envoy.is_connected { "connected" } else { "not connected" };
                let (version, state, epoch) = (&envoy.version, &envoy.state, envoy.epoch);
                writeln!(f, "envoy        {version} {state}, epoch {epoch}; xDS {connection}")?;
                for certificate in &envoy.certificates {
                    writeln!(f, "  {} expires {:.0}", certificate.uri, certificate.expires_at)?;
                }
            }
        }
        let Some(supervisor) = &self.supervisor else { return Ok(()) };
        writeln!(f, "supervisor   process {}; {} restarts", supervisor.pid, supervisor.restarts)?;
        match (&supervisor.last_error, supervisor.last_error_at) {
            (Some(error), Some(at)) => writeln!(f, "  {at:.0}: {error}"),
            _ => Ok(()),
        }
    }
}
