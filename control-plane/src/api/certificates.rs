//! The admin API's view of the certificates of the mesh. It reads no private key.

mod counts;
#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use imbl::OrdMap;
use ironmesh_api::{
    CertificateKind, CertificateList, CertificateProblem, CertificateUse, CertificateView,
};
use ironmesh_catalog::{
    CertificateState, IssuedCertificate, JoinRecord, MeshSpecification, ProxyId, Records,
    ServiceAccount, ServiceCertificate, TrustDomain,
};
use ironmesh_cert::CertificateFacts;
use jiff::Timestamp;

use super::RunningControlPlane;
use super::proxy_list::natural_key;
use crate::metrics::CertificateCounts;
use crate::reconciler::ExpiringProxies;

/// The listeners that present the control plane's certificate. The last one is off by default.
const LISTENERS: [&str; 3] = ["xds", "enrollment", "api"];

/// The part of its lifetime that a certificate which expires soon has left: it is renewed earlier.
const EXPIRING: i32 = 3;

/// The part of its lifetime that a certificate has left whose renewal is overdue.
const OVERDUE: i32 = 6;

impl RunningControlPlane {
    /// The certificates of the mesh, by kind and then by name.
    pub(super) fn certificate_list(&self) -> CertificateList {
        self.certificate_sources().list(Timestamp::now(), |id| self.is_connected(id))
    }

    /// How many certificates of each kind there are in each state.
    pub(super) fn certificate_counts(&self) -> CertificateCounts {
        self.certificate_sources().count(Timestamp::now())
    }

    fn certificate_sources(&self) -> CertificateSources {
        let (root, intermediate) = {
            let authority = self.authority.lock();
            (authority.root_facts().clone(), authority.intermediate_facts().clone())
        };
        let snapshot = self.feeds.snapshot.borrow().clone();
        let (specification, services) = snapshot
            .map(|snapshot| (Arc::clone(&snapshot.specification), snapshot.certificates.clone()))
            .unwrap_or_default();
        CertificateSources {
            trust_domain: self.mesh.trust_domain.clone(),
            root,
            intermediate,
            control_plane: self.feeds.own_certificate.borrow().clone(),
            records: self.register.all_records(),
            specification,
            services,
            has_api: self.api_address.is_some(),
        }
    }
}

/// What the list of certificates follows from.
struct CertificateSources {
    trust_domain: TrustDomain,
    root: CertificateFacts,
    intermediate: CertificateFacts,
    control_plane: CertificateFacts,
    /// All join records.
    records: Records,
    specification: Arc<MeshSpecification>,
    /// The certificates of the accounts in use.
    services: OrdMap<ServiceAccount, Arc<ServiceCertificate>>,
    /// Whether the API for operators on the network is on.
    has_api: bool,
}

impl CertificateSources {
    fn list(&self, now: Timestamp, is_connected: impl Fn(ProxyId) -> bool) -> CertificateList {
        let count = LISTENERS.len() - usize::from(!self.has_api);
        let listeners = LISTENERS.into_iter().take(count).map(str::to_owned);
        let listeners = CertificateUse::Listeners(listeners.collect());
        let own = [
            (CertificateKind::Root, &self.root, CertificateUse::TrustBundle),
            (CertificateKind::Intermediate, &self.intermediate, CertificateUse::Issuing),
            (CertificateKind::ControlPlane, &self.control_plane, listeners),
        ];
        let own = own.into_iter().map(|(kind, facts, used_by)| view(kind, facts, used_by, now));
        let mut certificates: Vec<_> = own.collect();
        certificates.extend(self.of_services(now));
        let problems = self.proxy_problems(now);
        for record in self.records.values() {
            let problem = problems.get(&record.id).copied();
            certificates.extend(self.of_proxy(record, problem, is_connected(record.id), now));
        }
        for certificate in &mut certificates {
            let age = certificate.issued_at.map(|at| now.duration_since(at).as_secs());
            certificate.age_seconds = age.map(|age| age.try_into().unwrap_or(0));
        }
        certificates.sort_by_cached_key(|one| (one.kind, natural_key(&one.name)));
        CertificateList { certificates }
    }

    /// The proxies in use whose certificates need attention.
    fn proxy_problems(&self, now: Timestamp) -> BTreeMap<ProxyId, CertificateProblem> {
        let ExpiringProxies { expired, expiring } = ExpiringProxies::among(&self.records, now);
        let expired = expired.into_iter().map(|record| (record.id, CertificateProblem::Expired));
        let expiring = expiring.into_iter().map(|record| {
            let end = record.certificate_expires_at;
            let is_overdue = has_less_left(issued_at(record), end, OVERDUE, now);
            let overdue = is_overdue.then_some(CertificateProblem::Overdue);
            (record.id, overdue.unwrap_or(CertificateProblem::Expiring))
        });
        expired.chain(expiring).collect()
    }

    /// The certificate of a proxy, and its predecessor while that is accepted.
    fn of_proxy(
        &self,
        record: &JoinRecord,
        problem: Option<CertificateProblem>,
        connected: bool,
        now: Timestamp,
    ) -> impl Iterator<Item = CertificateView> {
        let subject = |issued: Option<&IssuedCertificate>| {
            // Without a known one, that of the present first service.
            let service = issued.and_then(|issued| issued.service.as_ref());
            let service = service.or_else(|| record.services.first());
            let subject =
                service.map(|service| self.trust_domain.proxy(record.id, service).to_string());
            subject.unwrap_or_default()
        };
        let state = record.certificate_state(now);
        let credentials = record.credentials.as_ref();
        let (id, mesh_address) = (record.id, record.mesh_address);
        // A renewed certificate: until its first use, all streams are those of its predecessor.
        let is_unused = credentials.is_some_and(|known| {
            known.predecessor.is_some() && known.current.first_used_at.is_none()
        });
        let state = match state_word(state) {
            "claimed" if is_unused => "unused",
            other => other,
        };
        let use_of = |connected| CertificateUse::Proxy { id, mesh_address, connected };
        let current = CertificateView {
            kind: CertificateKind::Proxy,
            subject: subject(credentials.map(|known| &known.current)),
            name: record.display_name().to_string(),
            serial: credentials.map(|known| known.current.serial.clone()),
            state: state.to_owned(),
            issued_at: Some(issued_at(record)),
            age_seconds: None,
            not_after: record.certificate_expires_at,
            renew_at: None,
            used_by: use_of(connected && !is_unused),
            problem,
        };
        let predecessor = credentials
            .filter(|_| record.is_in_use(now))
            .and_then(|known| known.accepted_predecessor(now))
            .filter(|predecessor| predecessor.expires_at > now)
            .map(|predecessor| CertificateView {
                subject: subject(Some(predecessor)),
                serial: Some(predecessor.serial.clone()),
                used_by: use_of(connected && is_unused),
                state: "predecessor".to_owned(),
                issued_at: Some(predecessor.issued_at.max(record.enrolled_at)),
                not_after: predecessor.expires_at,
                problem: None,
                ..current.clone()
            });
        [current].into_iter().chain(predecessor)
    }

    /// The certificates of the accounts in use.
    fn of_services(&self, now: Timestamp) -> impl Iterator<Item = CertificateView> {
        let mut proxies: BTreeMap<&ServiceAccount, usize> = BTreeMap::new();
        for record in self.records.values().filter(|record| record.is_in_use(now)) {
            let services = record.services.iter();
            let services = services.filter_map(|name| self.specification.services.get(name));
            let accounts: BTreeSet<_> = services.map(|service| &service.account).collect();
            for account in accounts {
                *proxies.entry(account).or_default() += 1;
            }
        }
        self.services.iter().map(move |(account, certificate)| {
            let facts = CertificateFacts {
                name: account.to_string(),
                subject: self.trust_domain.workload(account).to_string(),
                serial: certificate.serial.clone(),
                issued_at: Some(certificate.issued_at()),
                not_after: certificate.not_after,
                renew_at: Some(certificate.renew_at),
            };
            let count = proxies.get(account).copied().unwrap_or_default();
            view(CertificateKind::Service, &facts, CertificateUse::Proxies(count), now)
        })
    }
}

/// The view of a certificate that the control plane issues to itself or to an account.
fn view(
    kind: CertificateKind,
    facts: &CertificateFacts,
    used_by: CertificateUse,
    now: Timestamp,
) -> CertificateView {
    let CertificateFacts { name, subject, serial, issued_at, not_after, renew_at } = facts.clone();
    let problem = problem(issued_at, not_after, renew_at.is_some(), now);
    let state = match problem {
        Some(CertificateProblem::Expired) => "expired",
        Some(_) => "expiring",
        None => "valid",
    };
    let (serial, state) = (Some(serial), state.to_owned());
    CertificateView {
        kind,
        subject,
        name,
        serial,
        state,
        issued_at,
        age_seconds: None,
        not_after,
        renew_at,
        used_by,
        problem,
    }
}

/// Why a certificate that the control plane issues to itself or to an account needs attention.
fn problem(
    issued_at: Option<Timestamp>,
    not_after: Timestamp,
    is_renewed: bool,
    now: Timestamp,
) -> Option<CertificateProblem> {
    let has_less_left =
        |part| issued_at.is_some_and(|issued_at| has_less_left(issued_at, not_after, part, now));
    if not_after <= now {
        Some(CertificateProblem::Expired)
    } else if is_renewed && has_less_left(OVERDUE) {
        Some(CertificateProblem::Overdue)
    } else if has_less_left(EXPIRING) {
        Some(CertificateProblem::Expiring)
    } else {
        None
    }
}

/// Whether less than this part of a lifetime is left.
fn has_less_left(issued_at: Timestamp, not_after: Timestamp, part: i32, now: Timestamp) -> bool {
    not_after.duration_since(now) < not_after.duration_since(issued_at) / part
}

/// When the certificate of a proxy was issued. A record of an earlier version got the beginning of the certificate's
/// validity instead, which is earlier than the enrollment.
fn issued_at(record: &JoinRecord) -> Timestamp {
    record.certificate_issued_at().max(record.enrolled_at)
}

fn state_word(state: CertificateState) -> &'static str {
    match state {
        CertificateState::Unclaimed => "unclaimed",
        CertificateState::Claimed => "claimed",
        CertificateState::EnrollmentExpired => "enrollment_expired",
        CertificateState::Expired => "expired",
        CertificateState::Revoked => "revoked",
    }
}
