//! The admin API's view of the running control plane. It keeps no state of its own.

mod endpoints;
mod plan;
mod proxies;

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;

use ironmesh_admin::{
    AcceptRemovalRequest, AcceptedEndpoints, AcceptedRemoval, ApiError, AuditView,
    BootstrapRequest, BootstrapResponse, Cancellation, ControlPlane, EndpointList, EnrolledProxy,
    FindingView, HandshakesView, MAX_ENROLLMENTS, MAX_KNOWN_AS, MAX_REASON, Plan, PlanRequest,
    PolicyView, ProxyConfig, ProxyDetail, ProxyView, Readiness, RejectedAddress, RejectedHandshake,
    RevisionList, RevisionView, RevokeRequest, Revoked, RollbackRequest, RolledBack,
};
use ironmesh_catalog::verdict::{
    InwardQuestion, InwardVerdict, OutwardQuestion, OutwardVerdict, Sight, inward, outward, verdict,
};
use ironmesh_catalog::{
    Finding, JoinRecord, Mesh, Participation, PolicyRecord, Proxy, ProxyId, Question, ServiceName,
    Verdict,
};
use ironmesh_cert::{Authority, PROXY_LIFETIME};
use ironmesh_config::closest;
use ironmesh_store::Store;
use ironmesh_xds_server::{ConnectionRejection, Hub};
use jiff::{SignedDuration, Timestamp};
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;
use uuid::Uuid;

use super::audit::Audit;
use super::metrics;
use super::policy_source::{PolicyState, Rollbacks};
use super::reconciler::{Acceptances, StatusFeeds};
use super::register::Register;
use super::state_watch::unknown_authority;
use ironmesh_catalog::text::chain;
pub(crate) use plan::Planning;

/// The running control plane, as the admin API serves it.
#[derive(Debug)]
pub(crate) struct RunningControlPlane {
    pub(crate) mesh: Mesh,
    pub(crate) authority: Arc<Mutex<Authority>>,
    pub(crate) register: Arc<Register>,
    pub(crate) policy: watch::Receiver<PolicyState>,
    pub(crate) rollbacks: Rollbacks,
    pub(crate) acceptances: Acceptances,
    pub(crate) store: Arc<Store>,
    pub(crate) feeds: StatusFeeds,
    /// The findings about the control plane's own state.
    pub(crate) state_findings: watch::Receiver<Vec<Finding>>,
    pub(crate) hub: Arc<Hub>,
    pub(crate) audit: Arc<Audit>,
    /// The address of the xDS listener.
    pub(crate) xds_address: SocketAddr,
    /// The addresses that proxies get for it; empty = derived from `xds_address`.
    pub(crate) advertise: Vec<(String, u16)>,
    pub(crate) planning: Planning,
    /// The findings about risks that the settings accept.
    pub(crate) standing_findings: Vec<FindingView>,
}

impl ControlPlane for RunningControlPlane {
    fn readiness(&self) -> Readiness {
        let ready = *self.feeds.ready.borrow();
        let state = self.policy.borrow().clone();
        let waiting_for = if ready {
            Vec::new()
        } else {
            let of_policy = snapshot_wait_reason(&state);
            let is_missing = self.feeds.snapshot.borrow().is_none();
            let mut waiting_for = self.feeds.endpoints.borrow().waiting_for.clone();
            waiting_for.splice(0..0, is_missing.then_some(of_policy));
            waiting_for
        };
        let of_state = self.state_findings.borrow().clone();
        let findings = self.feeds.mesh_findings.borrow();
        let of_mesh = of_state.iter().chain(&*findings).map(FindingView::from);
        let findings = self.standing_findings.iter().cloned().chain(of_mesh).collect();
        let handshakes = self.handshakes();
        Readiness { ready, waiting_for, policy: state.view, findings, handshakes }
    }

    fn proxies(&self) -> Vec<ProxyView> {
        self.register.all_records().values().map(|record| self.view(record)).collect()
    }

    fn proxy(&self, id: &str) -> Result<ProxyDetail, ApiError> {
        self.find(id).map(|record| self.detail(&record))
    }

    fn proxy_config(&self, id: &str) -> Result<ProxyConfig, ApiError> {
        self.find(id).map(|record| self.config(record.id))
    }

    fn revoke(&self, id: &str, request: &RevokeRequest) -> Result<Revoked, ApiError> {
        self.revoke_proxy(id, request)
    }

    fn endpoints(&self, service: Option<&ServiceName>) -> Result<EndpointList, ApiError> {
        self.endpoint_list(service)
    }

    fn accept_endpoints(&self, service: &ServiceName) -> Result<AcceptedEndpoints, ApiError> {
        self.accept(service)
    }

    fn explain(&self, question: &Question) -> Result<Verdict, ApiError> {
        self.answer_question(|newest| verdict(newest, question, Sight::Mesh))
    }

    fn explain_outward(&self, question: &OutwardQuestion) -> Result<OutwardVerdict, ApiError> {
        self.answer_question(|newest| outward(newest, question))
    }

    fn explain_inward(&self, question: &InwardQuestion) -> Result<InwardVerdict, ApiError> {
        self.answer_question(|newest| inward(newest, question))
    }

    fn plan(&self, request: &PlanRequest, cancellation: &Cancellation) -> Result<Plan, ApiError> {
        self.make_plan(request, cancellation)
    }

    fn policy_revisions(&self) -> Result<RevisionList, ApiError> {
        let mut kept = self.store.policies().map_err(|error| ApiError::Internal(chain(&error)))?;
        let PolicyView { in_force, rolled_back, .. } = self.policy.borrow().view.clone();
        if let Some(in_force) = &in_force
            && kept.iter().all(|record| record.revision != in_force.revision)
        {
            // It became active a moment ago, and will be stored.
            kept.insert(0, in_force.clone());
        }
        let current = in_force.map(|record| record.revision);
        let view = |record: PolicyRecord| {
            let current = current.as_ref() == Some(&record.revision);
            RevisionView { record, current }
        };
        Ok(RevisionList { revisions: kept.into_iter().map(view).collect(), rolled_back })
    }

    fn roll_back(&self, request: RollbackRequest) -> Result<RolledBack, ApiError> {
        let is_line = |text: &String| text.len() <= MAX_REASON && !text.contains(char::is_control);
        if ![&request.message, &request.by].into_iter().flatten().all(is_line) {
            let words =
                format!("a message and a name must each be one line of at most {MAX_REASON} bytes");
            return Err(ApiError::BadRequest(words));
        }
        self.rollbacks.roll_back(request)
    }

    fn accept_removal(&self, request: AcceptRemovalRequest) -> Result<AcceptedRemoval, ApiError> {
        let is_line = |text: &String| text.len() <= MAX_REASON && !text.contains(char::is_control);
        if !request.by.iter().all(is_line) {
            let words = format!("a name must be one line of at most {MAX_REASON} bytes");
            return Err(ApiError::BadRequest(words));
        }
        self.rollbacks.accept(request)
    }

    fn audit(&self) -> AuditView {
        self.audit.view()
    }

    fn metrics(&self) -> String {
        metrics::exposition(metrics::Sources {
            hub: Arc::clone(&self.hub),
            register: Arc::clone(&self.register),
            policy: self.policy.clone(),
            feeds: self.feeds.clone(),
            audit: Arc::clone(&self.audit),
        })
    }

    fn bootstrap(&self, request: &BootstrapRequest) -> Result<BootstrapResponse, ApiError> {
        self.check_enrollment(request)?;
        self.check_authority(request)?;
        let now = Timestamp::now();
        let mut neighbours: BTreeMap<SocketAddr, Vec<Arc<JoinRecord>>> = BTreeMap::new();
        let (mut enrolled, mut records, mut notes) = (Vec::new(), Vec::new(), BTreeSet::new());
        for record in self.register.records().values() {
            neighbours.entry(record.mesh_address).or_default().push(Arc::clone(record));
            let is_here = request.proxies.iter().any(|one| one.address == record.mesh_address.ip());
            if record.machine.is_some() && record.machine == request.machine && !is_here {
                let serves_too = record.services.iter().any(|one| request.services.contains(one));
                notes.extend(serves_too.then(|| {
                    format!(
                        "proxy {} is enrolled for the same machine, at {}: until one of the two is revoked, the control plane cannot tell which of them serves the endpoints there",
                        record.id, record.mesh_address
                    )
                }));
            }
        }
        let mut control_plane = Vec::new();
        for enrollment in &request.proxies {
            let id = ProxyId(Uuid::new_v4());
            // Locked for one proxy at a time: other signing does not wait for all of them.
            let certificate = self.authority.lock().issue_proxy_certificate(
                &enrollment.certificate_request,
                id,
                &request.services,
                PROXY_LIFETIME,
                now,
            );
            let certificate = certificate.map_err(|error| ApiError::BadRequest(chain(&error)))?;
            let mesh_address = SocketAddr::new(enrollment.address, Proxy::MESH_PORT);
            records.push(JoinRecord {
                id,
                services: request.services.clone(),
                mesh_address,
                addresses: request.known_as.clone(),
                machine: request.machine,
                joined_at: now,
                certificate_expires_at: certificate.not_after,
                claimed_at: None,
                labels: request.labels.clone(),
                locality: request.locality.clone(),
                participation: Participation::default(),
                revoked: None,
                vacant: Participation::default(),
                suspect_since: None,
            });
            let expires_at = certificate.not_after;
            enrolled.push(EnrolledProxy { id, certificate: certificate.chain, expires_at });
            let (control_plane_addresses, note) = self.control_plane_addresses(enrollment.address);
            control_plane = control_plane_addresses;
            notes.extend(note);
            notes.extend(neighbours.get(&mesh_address).into_iter().flatten().map(|neighbour| {
                let services: Vec<_> = neighbour.services.iter().map(ToString::to_string).collect();
                format!(
                    "proxy {} is already enrolled at this address, for {}: only one of the two can run there",
                    neighbour.id,
                    services.join(", ")
                )
            }));
        }
        let roots = self.authority.lock().trust_bundle().roots;
        self.register.add_all(records).map_err(|error| ApiError::Internal(chain(&error)))?;
        Ok(BootstrapResponse {
            proxies: enrolled,
            roots,
            control_plane,
            control_plane_id: self.mesh.trust_domain.control_plane().0.to_string(),
            notes: notes.into_iter().collect(),
        })
    }
}

/// What readiness waits for as long as there is no snapshot.
fn snapshot_wait_reason(policy: &PolicyState) -> String {
    if policy.specification.is_some() {
        // That takes a moment, for example to issue certificates.
        return "the first snapshot of the mesh".to_owned();
    }
    // Without findings, the source cannot be read at all.
    let view = &policy.view;
    let why = if view.findings.is_empty() { view.drawn.trim_end() } else { "" };
    let colon = if why.is_empty() { "" } else { ": " };
    format!("a policy without errors in `{}`{colon}{why}", view.source)
}

impl RunningControlPlane {
    /// The failed TLS handshakes with clients.
    fn handshakes(&self) -> HandshakesView {
        let failed = [
            ConnectionRejection::BadHandshake,
            ConnectionRejection::SlowHandshake,
            ConnectionRejection::Displaced,
        ];
        let counters = self.hub.counters();
        let time = |at: Instant| {
            let age = SignedDuration::try_from(at.elapsed()).unwrap_or(SignedDuration::MAX);
            Timestamp::now().saturating_sub(age).unwrap_or(Timestamp::MIN)
        };
        let rejections = self.hub.rejections();
        let last = rejections.last().map(|last| RejectedHandshake {
            address: last.address,
            at: time(last.at),
            reason: last.reason,
        });
        let recent = rejections.recent(Instant::now()).into_iter();
        let recent = recent.map(|(last, count)| RejectedAddress {
            address: last.address.ip().to_canonical(),
            count,
            at: time(last.at),
            reason: last.reason,
        });
        let recent = recent.collect();
        let rejected = failed.into_iter().map(|why| counters.connections_turned_away(why)).sum();
        HandshakesView { rejected, last, recent }
    }

    /// Rejects an enrollment after a loss of the state, which it would make permanent, proxy by proxy.
    fn check_authority(&self, request: &BootstrapRequest) -> Result<(), ApiError> {
        let finding = unknown_authority(&self.hub).filter(Finding::is_error);
        match finding.filter(|_| !request.new_authority) {
            None => Ok(()),
            Some(finding) => {
                let help = finding.help.unwrap_or_default();
                Err(ApiError::BadRequest(format!("{}: {}\n{help}", finding.code, finding.message)))
            }
        }
    }

    /// Rejects a request for what policy does not define: its proxy would serve nothing without any error.
    fn check_enrollment(&self, request: &BootstrapRequest) -> Result<(), ApiError> {
        let reject = |reason: String| Err(ApiError::BadRequest(reason));
        if request.services.is_empty() {
            return reject("a proxy serves at least one service: name one".to_owned());
        }
        let mut seen = BTreeSet::new();
        if let Some(twice) = request.services.iter().find(|service| !seen.insert(*service)) {
            return reject(format!("the service `{twice}` is named twice"));
        }
        let mut addresses = request.proxies.iter().map(|enrollment| enrollment.address);
        if let Some(bad) = addresses.find(|ip| ip.is_unspecified() || ip.is_multicast()) {
            return reject(format!(
                "callers cannot connect to a proxy at {bad}: give an address of its machine"
            ));
        }
        let mut known_as = request.known_as.iter();
        if let Some(bad) = known_as.find(|ip| ip.is_unspecified() || ip.is_multicast()) {
            return reject(format!(
                "a provider cannot know a machine by {bad}: give an address of the machine"
            ));
        }
        if request.known_as.len() > MAX_KNOWN_AS {
            return reject(format!("a machine is known by at most {MAX_KNOWN_AS} addresses"));
        }
        if request.proxies.len() > 1 && !request.known_as.is_empty() {
            return reject("several proxies cannot be known by the same addresses".to_owned());
        }
        if request.machine.is_some_and(|machine| machine.is_nil()) {
            return reject("no machine has this key: it is all zeros".to_owned());
        }
        if request.proxies.len() > 1 && request.machine.is_some() {
            return reject("several proxies cannot be known by the same machine".to_owned());
        }
        if !(1..=MAX_ENROLLMENTS).contains(&request.proxies.len()) {
            return reject(format!("a request enrolls 1 to {MAX_ENROLLMENTS} proxies"));
        }
        let Some(specification) = self.policy.borrow().specification.clone() else {
            return reject("no policy is active yet; see /readyz".to_owned());
        };
        let upstreams = request.upstreams.iter().map(|upstream| &upstream.service);
        let known = |name| specification.services.get(name);
        if let Some(part) = request.services.iter().filter_map(known).find(|one| one.is_subset()) {
            let (part, whole) = (&part.name, part.served_as());
            return reject(format!(
                "`{part}` is a subset of the service `{whole}`: enroll the proxy for `{whole}`, with the labels of the subset (`--label`)"
            ));
        }
        let mut services = request.services.iter().filter_map(known);
        if let Some(external) = services.find(|one| one.external.is_some()) {
            let name = &external.name;
            return reject(format!(
                "the service `{name}` is external to the mesh: no proxy serves it"
            ));
        }
        for name in request.services.iter().chain(upstreams) {
            if !specification.services.contains_key(name) {
                let known: Vec<_> =
                    specification.services.keys().map(ToString::to_string).collect();
                let near = closest(&name.to_string(), known.iter().map(String::as_str));
                let advice = match (near, known.as_slice()) {
                    (Some(near), _) => format!("did you mean `{near}`?"),
                    (None, []) => "it defines none".to_owned(),
                    (None, few @ [_, ..]) if few.len() <= 10 => {
                        format!("it defines: {}", few.join(", "))
                    }
                    (None, many) => format!("it defines {} others", many.len()),
                };
                return reject(format!("policy defines no service `{name}`; {advice}"));
            }
        }
        Ok(())
    }

    /// The addresses of the control plane for a proxy at `address`, and a note if they do not suffice.
    fn control_plane_addresses(&self, address: IpAddr) -> (Vec<(String, u16)>, Option<String>) {
        if !self.advertise.is_empty() {
            return (self.advertise.clone(), None);
        }
        let port = self.xds_address.port();
        let host = match self.xds_address.ip() {
            any if any.is_unspecified() => IpAddr::from([127, 0, 0, 1]),
            one => one,
        };
        let note = format!(
            "the bootstrap names the control plane {host}:{port}; for a proxy on another machine set `advertise` in the settings"
        );
        let is_elsewhere = host.is_loopback() && !address.is_loopback();
        (vec![(host.to_string(), port)], is_elsewhere.then_some(note))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn start_waits_for_a_policy_and_then_for_the_snapshot() {
        let mut state = PolicyState::default();
        state.view.source = "policy".to_owned();
        assert_eq!(snapshot_wait_reason(&state), "a policy without errors in `policy`");
        state.view.drawn = "it is away\n".to_owned();
        assert_eq!(snapshot_wait_reason(&state), "a policy without errors in `policy`: it is away");
        state.specification = Some(Arc::default());
        assert_eq!(snapshot_wait_reason(&state), "the first snapshot of the mesh");
    }
}
