//! Admission of xDS streams: the verified certificate and the join record decide, never what a proxy reports about
//! itself (invariant 2).

use std::sync::Arc;

use ironmesh_catalog::{
    CertificateRecognition, CertificateState, JournalEntry, JournalOutcome, ProxyId, TrustDomain,
};
use ironmesh_cert::peer::{VerifiedProxy, proxy_identity};
use ironmesh_sidecar::envoy::MINIMUM_VERSION;
use ironmesh_xds_server::{Admission, ClientKey, Completion, Peer, StreamRejection};
use ironmesh_xds_wire::pb::envoy::service::health::v3::HealthCheckSpecifier;
use ironmesh_xds_wire::{EndpointReport, EnvoyVersion, LoggedCall, Node};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use tokio::sync::{Mutex, watch};
use tokio::time::Instant;

use super::audit::Audit;
use super::enrollment::{Alarms, CertificateAlarm};
use super::health_discovery::HealthDiscovery;
use super::journal::{Journal, claim};
use super::node_metadata::node_metadata;
use super::register::{CertificateFirstUse, Register};
use super::sidecars::SERVERS;
use super::single_addresses::SingleAddresses;
use ironmesh_catalog::text::chain;

/// The oldest Envoy that is admitted: the oldest that the driver runs.
pub const OLDEST_ENVOY: EnvoyVersion = EnvoyVersion {
    major: MINIMUM_VERSION.major,
    minor: MINIMUM_VERSION.minor,
    patch: MINIMUM_VERSION.patch,
};

/// Decides which clients may open a stream, and claims their certificates.
#[derive(Debug)]
pub(crate) struct ProxyAdmission {
    trust_domain: TrustDomain,
    register: Arc<Register>,
    audit: Arc<Audit>,
    journal: Journal,
    alarms: Arc<Alarms>,
    health: Arc<HealthDiscovery>,
    single_addresses: Arc<SingleAddresses>,
    /// Held while first uses are written: those that come meanwhile are written together by the next holder.
    recording: Mutex<()>,
}

impl ProxyAdmission {
    pub(crate) fn new(
        trust_domain: TrustDomain,
        register: Arc<Register>,
        audit: Arc<Audit>,
        journal: Journal,
        alarms: Arc<Alarms>,
        health: Arc<HealthDiscovery>,
        single_addresses: Arc<SingleAddresses>,
    ) -> Self {
        let recording = Mutex::default();
        Self { trust_domain, register, audit, journal, alarms, health, single_addresses, recording }
    }
}

impl Admission for ProxyAdmission {
    fn admit(&self, peer: &Peer, node: &Node) -> Result<ClientKey, StreamRejection> {
        let reject = |reason: String| Err(StreamRejection(reason));
        let proxy = match VerifiedProxy::read(&peer.certificate) {
            Ok(proxy) => proxy,
            Err(error) => return reject(chain(&error)),
        };
        let (presented, identity) = (proxy.presented(), proxy.identity);
        let id = identity.proxy;
        if identity.trust_domain != self.trust_domain {
            return reject(format!(
                "the certificate belongs to a different trust domain: {}",
                identity.trust_domain
            ));
        }
        if ProxyId::from_node_id(&node.id) != Some(id) {
            return reject(format!(
                "the node id contradicts the certificate, which identifies proxy {id}"
            ));
        }
        if let Some(version) = node.envoy_version.filter(|version| *version < OLDEST_ENVOY) {
            // The report of versions names it.
            if let Err(error) = self.register.record_envoy_version(id, &version.to_string()) {
                tracing::error!(proxy = %id, error = chain(&error), "cannot record the version of an Envoy");
            }
            return reject(format!(
                "Envoy {version} is too old: upgrade it to {OLDEST_ENVOY} or later"
            ));
        }
        let metadata = match node_metadata(node) {
            Ok(metadata) => metadata,
            Err(problem) => return reject(problem),
        };
        let Some(record) = self.register.get(id) else {
            return reject(format!("proxy {id} is not enrolled in this mesh"));
        };
        // The certificates of bound credentials are known by their serial numbers. The services of the record may have
        // changed since.
        if record.credentials.is_none() && !record.services.contains(&identity.service) {
            return reject(format!(
                "proxy {id} is not enrolled in this mesh for {}",
                identity.service
            ));
        }
        if let Err(unknown) = SERVERS.find(&record.driver) {
            return reject(format!("proxy {id} cannot be served: {unknown}"));
        }
        let now = Timestamp::now();
        match (record.certificate_state(now), &record.revoked) {
            (CertificateState::Revoked, Some(revocation)) => {
                return reject(format!("proxy {id} was {revocation}"));
            }
            (CertificateState::EnrollmentExpired, _) => {
                return reject(format!(
                    "the enrollment of proxy {id} expired: its certificate was not used within 24 hours of {}; {}",
                    record.enrolled_at,
                    record.enroll_again()
                ));
            }
            // The TLS handshake rejects an expired certificate.
            _ => {}
        }
        let recognition = record.recognize(&presented, now);
        let alarm = CertificateAlarm::of(recognition);
        let is_first =
            alarm.is_some_and(|alarm| self.alarms.raise(&record, alarm, peer.address, now));
        let reason = match recognition {
            CertificateRecognition::Older => format!(
                "this certificate of proxy {id} is an old copy: it was renewed, and its successor is in use"
            ),
            CertificateRecognition::OtherKey => format!(
                "this certificate of proxy {id} is for another key than the one that the proxy enrolled with"
            ),
            CertificateRecognition::Current
            | CertificateRecognition::Predecessor
            | CertificateRecognition::Newer => {
                self.single_addresses.note(id, &metadata);
                return Ok(id.to_string().into());
            }
        };
        // An Envoy repeats its attempt for ever.
        if is_first {
            let outcome = JournalOutcome::Rejected { reason: reason.clone() };
            let entry = claim(&record, peer.address, now);
            self.journal.record(JournalEntry { outcome, ..entry });
        }
        reject(reason)
    }

    /// Records the first use of the proxy's certificate. A thousand proxies that connect at once share a few writes,
    /// and hold one thread.
    fn complete<'a>(&'a self, client: &'a ClientKey, peer: &'a Peer) -> Completion<'a> {
        Box::pin(async move {
            let presented = VerifiedProxy::read(&peer.certificate);
            let presented = presented.map_err(|error| StreamRejection(chain(&error)))?.presented();
            let first_use = CertificateFirstUse { at: Timestamp::now(), certificate: presented };
            let unused = |id| {
                self.register.get(id).filter(|record| first_use.updated_record(record).is_some())
            };
            let Some(record) = client.parse().ok().and_then(unused) else { return Ok(()) };
            self.register.announce_use(record.id, first_use.clone());
            let _recording = self.recording.lock().await;
            // The stream before may have written this use, too.
            if unused(record.id).is_some() {
                // The disk may be slow: other tasks continue on other threads.
                let recorded =
                    tokio::task::block_in_place(|| self.register.record_use(record.id, &first_use));
                recorded.map_err(|error| StreamRejection(chain(&error)))?;
            }
            if record.claimed_at.is_none() {
                self.journal.record(claim(&record, peer.address, first_use.at));
            }
            // Of two first streams with different keys, one binds its key.
            let recognized = self
                .register
                .get(record.id)
                .map(|record| record.recognize(&first_use.certificate, first_use.at));
            if recognized == Some(CertificateRecognition::OtherKey) {
                let reason = format!("proxy {} was claimed with another key", record.id);
                return Err(StreamRejection(reason));
            }
            Ok(())
        })
    }

    /// The proxy: a renewed or newly issued certificate does not make it a second client.
    fn owner(&self, certificate: &CertificateDer<'_>) -> Option<ClientKey> {
        proxy_identity(certificate).ok().map(|identity| identity.proxy.to_string().into())
    }

    /// Records calls that an admitted proxy reports; its join record decides which of them count.
    fn logged(&self, client: &ClientKey, calls: Vec<LoggedCall>) {
        let record = client.parse().ok().and_then(|id| self.register.get(id));
        if let Some(record) = record {
            self.audit.record_calls(&record, &calls);
        }
    }

    /// What a proxy without an agent probes. Its join record and the active policy decide.
    fn health_checks(
        &self,
        client: &ClientKey,
        node: &Node,
    ) -> watch::Receiver<Arc<HealthCheckSpecifier>> {
        let record = client.parse().ok().and_then(|id| self.register.get(id));
        match (record, node_metadata(node)) {
            (Some(record), Ok(metadata)) => self.health.open(&record, metadata),
            // Admission has found both, a moment ago.
            _ => watch::Sender::default().subscribe(),
        }
    }

    /// Records the health that an admitted proxy reports of its own applications.
    fn health_reported(&self, client: &ClientKey, endpoints: Vec<EndpointReport>) {
        if let Ok(id) = client.parse() {
            self.health.report(id, endpoints, Instant::now());
        }
    }
}
