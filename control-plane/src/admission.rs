//! Who may connect: the verified certificate and the join record decide, and nothing that a proxy
//! says of itself (invariant 2).

use std::sync::Arc;

use ironmesh_catalog::{CertificateState, ProxyId, TrustDomain};
use ironmesh_cert::peer::proxy_identity;
use ironmesh_xds_server::{Admission, ClientKey, Peer, StreamRejection};
use ironmesh_xds_wire::{EnvoyVersion, LoggedCall, Node};
use jiff::Timestamp;
use rustls::pki_types::CertificateDer;

use super::audit::Audit;
use super::register::Register;
use super::statement::statement;
use ironmesh_catalog::text::chain;

/// Older Envoys have holes in what we rely on: RBAC could be passed by path parameters and by headers
/// with several values, and SAN matching by an embedded NUL (fixed in 1.39).
pub const OLDEST_ENVOY: EnvoyVersion = EnvoyVersion { major: 1, minor: 39, patch: 0 };

#[derive(Debug)]
pub(crate) struct ProxyAdmission {
    trust_domain: TrustDomain,
    register: Arc<Register>,
    audit: Arc<Audit>,
}

impl ProxyAdmission {
    pub(crate) fn new(
        trust_domain: TrustDomain,
        register: Arc<Register>,
        audit: Arc<Audit>,
    ) -> Self {
        Self { trust_domain, register, audit }
    }
}

impl Admission for ProxyAdmission {
    fn admit(&self, peer: &Peer, node: &Node) -> Result<ClientKey, StreamRejection> {
        let refuse = |reason: String| Err(StreamRejection(reason));
        let identity = match proxy_identity(&peer.certificate) {
            Ok(identity) => identity,
            Err(error) => return refuse(chain(&error)),
        };
        let id = identity.proxy;
        if identity.trust_domain != self.trust_domain {
            return refuse(format!(
                "the certificate is of another trust domain: {}",
                identity.trust_domain
            ));
        }
        if ProxyId::from_node_id(&node.id) != Some(id) {
            return refuse(format!(
                "the node id contradicts the certificate, which is of proxy {id}"
            ));
        }
        if let Some(version) = node.envoy_version.filter(|version| *version < OLDEST_ENVOY) {
            return refuse(format!(
                "this Envoy is too old: it is {version}, and {OLDEST_ENVOY} is the oldest that is safe here; upgrade it"
            ));
        }
        if let Err(problem) = statement(node) {
            return refuse(problem);
        }
        let record =
            self.register.get(id).filter(|record| record.services.contains(&identity.service));
        let Some(record) = record else {
            return refuse(format!("proxy {id} has not joined this mesh as {}", identity.service));
        };
        let now = Timestamp::now();
        match (record.certificate_state(now), &record.revoked) {
            (CertificateState::Revoked, Some(revocation)) => {
                return refuse(format!("proxy {id} was {revocation}"));
            }
            (CertificateState::Forfeit, _) => {
                return refuse(format!(
                    "the certificate of proxy {id} was not used within a day of {}; join again",
                    record.joined_at
                ));
            }
            // That its own time has passed is seen at its connection.
            _ => {}
        }
        if record.claimed_at.is_none()
            // It is written to the disk: other streams go on on other threads.
            && let Err(error) = tokio::task::block_in_place(|| self.register.claim(id, now))
        {
            return refuse(chain(&error));
        }
        Ok(id.to_string().into())
    }

    /// The proxy: a certificate that is renewed, or issued anew, makes no second client of it.
    fn owner(&self, certificate: &CertificateDer<'_>) -> Option<ClientKey> {
        proxy_identity(certificate).ok().map(|identity| identity.proxy.to_string().into())
    }

    /// It was admitted by its record, which says of what it may tell.
    fn logged(&self, client: &ClientKey, calls: Vec<LoggedCall>) {
        let record = client.parse().ok().and_then(|id| self.register.get(id));
        if let Some(record) = record {
            self.audit.logged(&record, &calls);
        }
    }
}
