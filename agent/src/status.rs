//! The status of a machine: its certificate, its agent, its Envoy and its connection to the control plane.
//!
//! It is collected from files and sockets whenever it is asked for, so it does not depend on a running agent. It
//! changes nothing.

mod envoy_report;
mod local;
mod server_info;
mod text;

use std::path::{Path, PathBuf};
use std::time::Duration;

use ironmesh_agent_envoy::local_http::LocalAddress;
use ironmesh_agent_envoy::{EnvoyState, SupervisorClient, SupervisorStatus};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{ApplicationState, ProxyId, ServiceName};
use ironmesh_cert::RENEWAL_GRACE;
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_enrollment::{ProxyStatus, ProxySync};
use ironmesh_sidecar::envoy::{self, agent_socket};
use ironmesh_sidecar_folder::{ENROLLMENT, EnrollmentState};
use jiff::{SignedDuration, Timestamp};
use rustls_pki_types::CertificateDer;
use rustls_pki_types::pem::PemObject as _;
use serde::{Deserialize, Serialize};

use crate::activity::{AgentActivity, AgentPhase, ClosedPort, ProbeActivity};
use crate::control_plane::ProxyControlPlane;
use crate::due::due_at;
use crate::mesh_check::check_mesh;
use crate::settings::AgentSettings;
use crate::supervised::admin_address;
pub use envoy_report::{EnvoyReport, ServiceCertificateReport};
pub(crate) use local::{LocalRequestError, get, get_both};
pub(crate) use server_info::ServerInfo;

/// The time limit of the question to the control plane.
const ANSWER_LIMIT: Duration = Duration::from_secs(10);

/// After this time without an ACK a proxy is late: each wait for other proxies ends after 15 s.
const LATE: SignedDuration = SignedDuration::from_secs(20);

/// The status of a machine.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct MachineStatus {
    /// What is wrong, the most important first; empty if nothing is.
    pub problems: Vec<String>,
    /// The folder of the proxy.
    pub folder: PathBuf,
    /// The enrolled proxy; none if the machine is not enrolled.
    pub proxy: Option<ProxyCertificateReport>,
    /// The running agent; none if it does not run.
    pub agent: Option<AgentActivity>,
    /// The running Envoy; none if it does not run.
    pub envoy: Option<EnvoyReport>,
    /// The supervisor of Envoy; none if Envoy runs by itself, or not at all.
    pub supervisor: Option<SupervisorStatus>,
    /// The proxy as the control plane sees it; none if it does not answer.
    pub control_plane: Option<ProxyStatus>,
    /// The health probes of the applications, by the running agent.
    pub probes: Vec<ProbeActivity>,
}

/// The enrolled proxy, by its certificate.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct ProxyCertificateReport {
    /// Its id.
    pub id: ProxyId,
    /// The service that its certificate names: the first one when it was issued.
    pub service: ServiceName,
    /// The serial number of the certificate, in hexadecimal.
    pub serial: String,
    /// When the certificate was issued; none if that is unknown.
    pub issued_at: Option<Timestamp>,
    /// From when on the agent renews it.
    pub due_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
}

impl MachineStatus {
    /// Collects the status of the machine with these settings.
    pub async fn collect(settings: &AgentSettings, now: Timestamp) -> Self {
        let folder = &*settings.folder;
        let mut problems = Vec::new();
        // First: an agent that enrolls the machine at this moment has then written its files.
        let mut of_agent = Vec::new();
        let agent = agent(settings, &mut of_agent).await;
        let proxy = proxy_certificate(settings, now, &mut problems);
        problems.extend(check_mesh(settings).err().map(|error| chain(&error)));
        problems.append(&mut of_agent);
        let (mut envoy, mut control_plane) = (None, None);
        let supervisor = SupervisorClient::new(folder).status().await.ok();
        if proxy.is_some() {
            match admin_address(settings) {
                Ok(admin) => envoy = EnvoyReport::collect(&admin, now, &mut problems).await,
                Err(error) => problems.push(chain(&error)),
            }
            problems.extend(supervisor.as_ref().and_then(supervisor_problem));
            let is_connected = envoy.as_ref().is_some_and(|envoy| envoy.is_connected);
            control_plane = ask(settings, is_connected, now, &mut problems).await;
        }
        let probes = agent.as_ref().map(|agent| agent.probes.clone()).unwrap_or_default();
        problems.extend(probes.iter().filter_map(probe_problem));
        let closed = agent.iter().flat_map(|agent| &agent.closed_ports);
        problems.extend(closed.filter_map(|port| closed_port_problem(port, now)));
        let folder = folder.to_owned();
        Self { problems, folder, proxy, agent, envoy, supervisor, control_plane, probes }
    }
}

/// The problem of an application that fails its health check.
fn probe_problem(probe: &ProbeActivity) -> Option<String> {
    let ProbeActivity { service, port, since, .. } = probe;
    let why = probe.last_error.as_deref().unwrap_or("waits for further successes");
    (probe.state == ApplicationState::Unhealthy).then(|| {
        format!("the application of service {service}, port {port} fails its health check since {since:.0}: {why}")
    })
}

/// The problem of an inbound port that accepts no callers for longer than a start takes.
fn closed_port_problem(port: &ClosedPort, now: Timestamp) -> Option<String> {
    let ClosedPort { name, since, reason } = port;
    (now.duration_since(*since) > LATE).then(|| {
        format!("inbound port `{name}` of Envoy accepts no callers since {since:.0}, so they do not use it: {reason}")
    })
}

/// When the certificate in the folder expires, if it can be read.
pub(crate) fn certificate_expiry(folder: &Path) -> Option<Timestamp> {
    certificate(folder).ok().map(|proxy| proxy.not_after)
}

fn certificate(folder: &Path) -> Result<VerifiedProxy, String> {
    let path = folder.join(envoy::CERTIFICATE);
    let pem = fs_err::read(&path).map_err(|error| error.to_string())?;
    CertificateDer::from_pem_slice(&pem)
        .map_err(|_| "it is no PEM certificate".to_owned())
        .and_then(|leaf| VerifiedProxy::read(&leaf).map_err(|error| error.to_string()))
        .map_err(|problem| format!("`{}` is unusable: {problem}", path.display()))
}

fn proxy_certificate(
    settings: &AgentSettings,
    now: Timestamp,
    problems: &mut Vec<String>,
) -> Option<ProxyCertificateReport> {
    let folder = &*settings.folder;
    if let Err(error) = folder.try_exists() {
        problems.push(format!(
            "this user cannot read `{}` ({error}): run the command as the agent's user",
            folder.display()
        ));
        return None;
    }
    if !folder.exists() {
        problems
            .push(format!("the machine is not enrolled: `{}` does not exist", folder.display()));
        return None;
    }
    let proxy = match certificate(folder) {
        Ok(proxy) => proxy,
        Err(problem) => {
            problems.push(problem);
            return None;
        }
    };
    let state = fs_err::read_to_string(folder.join(ENROLLMENT)).ok();
    let state = state.and_then(|text| EnrollmentState::parse(&text).ok());
    let issued_at = state.and_then(|state| state.issued_at);
    let due_at = due_at(&proxy, issued_at);
    let expires_at = proxy.not_after;
    // A renewal that works is made soon after it is due.
    let late = SignedDuration::from_hours(24).min(expires_at.duration_since(due_at) / 2);
    if now >= expires_at {
        let action = if now.duration_since(expires_at) > RENEWAL_GRACE {
            format!("it is too old to be renewed: {}", settings.enroll_again())
        } else {
            "it can be renewed for 7 days from then".to_owned()
        };
        problems.push(format!(
            "the proxy certificate expired at {expires_at:.0}: Envoy cannot connect to the control plane; {action}"
        ));
    } else if now.duration_since(due_at) > late {
        problems.push(format!(
            "the proxy certificate is overdue for renewal since {due_at:.0} and expires at {expires_at:.0}"
        ));
    }
    Some(ProxyCertificateReport {
        id: proxy.identity.proxy,
        service: proxy.identity.service.clone(),
        serial: proxy.serial,
        issued_at,
        due_at,
        expires_at,
    })
}

/// What is wrong by the report of the supervisor.
fn supervisor_problem(status: &SupervisorStatus) -> Option<String> {
    let error = status.last_error.as_deref();
    if status.state == EnvoyState::Drained {
        return Some("Envoy is drained by an order of the control plane: `ironmesh proxy uncordon` there starts it again".to_owned());
    }
    let Some(envoy) = &status.envoy else {
        return (status.state == EnvoyState::Restarting).then(|| {
            format!("the supervisor starts Envoy again, because {}", error.unwrap_or("it exited"))
        });
    };
    let is_newer = status.last_error_at.is_some_and(|at| at > envoy.since);
    error.filter(|_| is_newer).map(|error| {
        format!("Envoy serves as epoch {}, but the last reload failed: {error}", envoy.epoch)
    })
}

/// Asks the control plane for the state of the proxy.
async fn ask(
    settings: &AgentSettings,
    is_envoy_connected: bool,
    now: Timestamp,
    problems: &mut Vec<String>,
) -> Option<ProxyStatus> {
    let (folder, addresses) = (&settings.folder, &settings.control_plane);
    let answer = match ProxyControlPlane::open(folder, addresses, ANSWER_LIMIT) {
        Ok(control_plane) => control_plane.status().await,
        Err(error) => Err(error),
    };
    let status = match answer {
        Ok(status) => status,
        Err(error) if error.is_revoked() => {
            let advice = settings.enroll_again();
            problems.insert(0, format!("the proxy is revoked: {}; {advice}", chain(&error)));
            return None;
        }
        Err(error) => {
            problems.push(chain(&error));
            return None;
        }
    };
    let is_late = status.sync_since.is_some_and(|since| now.duration_since(since) > LATE);
    match status.sync {
        ProxySync::Nacked => problems.push(format!(
            "Envoy NACKs a resource, and a fallback is active: `ironmesh proxy show {}` on the control-plane host says which",
            status.name
        )),
        // Otherwise Envoy's own report says so.
        ProxySync::Disconnected if is_envoy_connected => problems.push(
            "Envoy has an xDS stream, but not to this control plane: compare their addresses"
                .to_owned(),
        ),
        ProxySync::Updating | ProxySync::Held if is_late => problems.push(format!(
            "Envoy has not ACKed its resources since {:.0}",
            status.sync_since.unwrap_or(now)
        )),
        _ => {}
    }
    if let Some(since) = status.leaving_since {
        problems.push(format!("the proxy leaves the mesh since {since:.0}: callers do not use it"));
    }
    if let Some(since) = status.cordoned_since {
        problems.push(format!(
            "an operator cordoned or drained the proxy at {since:.0}: callers do not use it"
        ));
    }
    Some(status)
}

async fn agent(settings: &AgentSettings, problems: &mut Vec<String>) -> Option<AgentActivity> {
    let address = LocalAddress::Socket(agent_socket(&settings.folder));
    let activity = get(&address, "/activity").await.and_then(|body| {
        let activity = serde_json::from_slice::<AgentActivity>(body.as_ref());
        activity.map_err(|error| LocalRequestError::invalid(&address, &error))
    });
    match activity {
        Err(error) if error.is_absent() => {
            problems.push("the agent does not run: see `systemctl status ironmesh-agent`, or start `ironmesh agent run`".to_owned());
            None
        }
        Err(error) => {
            problems.push(format!("the agent does not answer: {error}"));
            None
        }
        Ok(activity) => {
            match activity.phase {
                AgentPhase::Revoked => {
                    problems.push(format!("the proxy is revoked: {}", settings.enroll_again()));
                }
                AgentPhase::WaitingForToken => {
                    problems.push("the agent waits for a new token".to_owned());
                }
                AgentPhase::Joining | AgentPhase::Enrolled => {}
            }
            if let Some(last) = activity.errors.back().filter(|_| activity.is_failing) {
                problems.push(format!("the last attempt of the agent failed: {}", last.error));
            }
            Some(activity)
        }
    }
}
