//! Admission of xDS streams: the verified certificate and the join record decide, never what a proxy reports about
//! itself (invariant 2).

use std::sync::Arc;

use ironmesh_catalog::{CertificateState, ProxyId, TrustDomain};
use ironmesh_cert::peer::proxy_identity;
use ironmesh_xds_server::{Admission, ClientKey, Completion, Peer, StreamRejection};
use ironmesh_xds_wire::{EnvoyVersion, LoggedCall, Node};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;
use tokio::sync::Mutex;

use super::audit::Audit;
use super::journal::{Journal, claim};
use super::node_metadata::node_metadata;
use super::register::Register;
use ironmesh_catalog::text::chain;

/// The oldest Envoy that is admitted. Older ones have holes in what authorization relies on: path parameters and
/// headers with several values passed RBAC, and an embedded NUL passed SAN matching (fixed in 1.39).
pub const OLDEST_ENVOY: EnvoyVersion = EnvoyVersion { major: 1, minor: 39, patch: 0 };

/// Decides which clients may open a stream, and claims their certificates.
#[derive(Debug)]
pub(crate) struct ProxyAdmission {
    trust_domain: TrustDomain,
    register: Arc<Register>,
    audit: Arc<Audit>,
    journal: Journal,
    /// Held while claims are written: those that come meanwhile are written together by the next holder.
    claiming: Mutex<()>,
}

impl ProxyAdmission {
    pub(crate) fn new(
        trust_domain: TrustDomain,
        register: Arc<Register>,
        audit: Arc<Audit>,
        journal: Journal,
    ) -> Self {
        Self { trust_domain, register, audit, journal, claiming: Mutex::default() }
    }
}

impl Admission for ProxyAdmission {
    fn admit(&self, peer: &Peer, node: &Node) -> Result<ClientKey, StreamRejection> {
        let reject = |reason: String| Err(StreamRejection(reason));
        let identity = match proxy_identity(&peer.certificate) {
            Ok(identity) => identity,
            Err(error) => return reject(chain(&error)),
        };
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
            return reject(format!(
                "Envoy {version} is too old: upgrade it to {OLDEST_ENVOY} or later"
            ));
        }
        if let Err(problem) = node_metadata(node) {
            return reject(problem);
        }
        let record =
            self.register.get(id).filter(|record| record.services.contains(&identity.service));
        let Some(record) = record else {
            return reject(format!(
                "proxy {id} is not enrolled in this mesh for {}",
                identity.service
            ));
        };
        let now = Timestamp::now();
        match (record.certificate_state(now), &record.revoked) {
            (CertificateState::Revoked, Some(revocation)) => {
                return reject(format!("proxy {id} was {revocation}"));
            }
            (CertificateState::EnrollmentExpired, _) => {
                return reject(format!(
                    "the enrollment of proxy {id} expired: its certificate was not used within 24 hours of {}; enroll it again",
                    record.enrolled_at
                ));
            }
            // The TLS handshake rejects an expired certificate.
            _ => {}
        }
        Ok(id.to_string().into())
    }

    /// Claims the proxy's certificate at its first stream. A thousand proxies that connect at once share a few writes,
    /// and hold one thread.
    fn complete<'a>(&'a self, client: &'a ClientKey, peer: &'a Peer) -> Completion<'a> {
        Box::pin(async move {
            let unclaimed = |id| self.register.get(id).filter(|one| one.claimed_at.is_none());
            let record = client.parse().ok().and_then(unclaimed);
            let Some(record) = record else { return Ok(()) };
            let now = Timestamp::now();
            self.register.announce_claim(record.id, now);
            let _claiming = self.claiming.lock().await;
            // The stream before may have written this claim, too.
            if unclaimed(record.id).is_some() {
                // The disk may be slow: other tasks continue on other threads.
                let claimed = tokio::task::block_in_place(|| self.register.claim(record.id, now));
                claimed.map_err(|error| StreamRejection(chain(&error)))?;
            }
            self.journal.record(claim(&record, peer.address, now));
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
}
