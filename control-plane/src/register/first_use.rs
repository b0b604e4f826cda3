//! The first use of a certificate by an accepted connection: it claims the proxy, binds its key, and ends the overlap with
//! the predecessor. It never decides whether a connection is accepted.

use ironmesh_catalog::{
    CertificateRecognition, JoinRecord, PresentedCertificate, ProxyCredentials,
};
use jiff::Timestamp;

/// The first use of a certificate by an xDS stream.
#[derive(Debug, Clone)]
pub(crate) struct CertificateFirstUse {
    pub(crate) at: Timestamp,
    pub(crate) certificate: PresentedCertificate,
}

impl CertificateFirstUse {
    /// The record with this use, if that changes it: the first use claims the proxy, binds its key, and ends the overlap
    /// with the predecessor of its certificate.
    pub(crate) fn updated_record(&self, record: &JoinRecord) -> Option<JoinRecord> {
        let mut credentials = match &record.credentials {
            None => ProxyCredentials::bound_by(&self.certificate, record.enrolled_at),
            Some(known) => match known.recognize(&self.certificate, self.at) {
                CertificateRecognition::Newer => known.restored_by(&self.certificate),
                _ => known.clone(),
            },
        };
        if credentials.current.serial == self.certificate.serial {
            credentials.current.first_used_at.get_or_insert(self.at);
            credentials.current.chain = None;
        }
        let claimed_at = record.claimed_at.or(Some(self.at));
        let certificate_expires_at = credentials.current.expires_at;
        let credentials = Some(credentials);
        let is_changed = claimed_at != record.claimed_at || credentials != record.credentials;
        is_changed.then(|| JoinRecord {
            claimed_at,
            credentials,
            certificate_expires_at,
            ..record.clone()
        })
    }
}
