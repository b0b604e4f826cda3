//! Enrollment by a token: its use is stored before the certificate is issued, so that it works once.

use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::{
    JoinRecord, JoinToken, JournalKind, JournalSubject, KeyHash, ProxyId, ProxyName, Records,
    TokenId, TokenState, TokenUse, reserved_ports,
};
use ironmesh_cert::{BearerToken, TokenUsage};
use ironmesh_cert::{ENROLLED_PROXY_LIFETIME, MachineRequest};
use ironmesh_enrollment::{Enrolled, Enrollment, EnrollmentError};
use ironmesh_store::{RecordError, Versioned};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    ChangeError, MachineEnrollment, check_address, holder, subject, unavailable,
    with_first_certificate,
};
use crate::journal::{CertificateHolder, few};
use crate::proxy_names::{default_names, name_like, with_unnamed};
use ironmesh_catalog::text::chain;

/// Why a machine is not enrolled: the error of the response, and the reason in the journal.
pub(super) struct Rejection {
    pub(super) error: EnrollmentError,
    /// None if the machine has no token of this mesh: requests without one must not displace entries of the journal.
    pub(super) reason: Option<String>,
}

impl Rejection {
    /// Without a token of this mesh.
    fn of_unknown_token() -> Self {
        Self { error: EnrollmentError::TokenRejected, reason: None }
    }

    /// The response states only that the token is of no use.
    fn of_token(reason: impl Into<String>) -> Self {
        Self { error: EnrollmentError::TokenRejected, reason: Some(reason.into()) }
    }
}

impl From<EnrollmentError> for Rejection {
    fn from(error: EnrollmentError) -> Self {
        Self { reason: Some(error.to_string()), error }
    }
}

impl From<RecordError> for Rejection {
    fn from(error: RecordError) -> Self {
        Self { error: unavailable(&error), reason: Some(chain(&error)) }
    }
}

impl MachineEnrollment {
    /// Enrolls the machine, or answers a repeated request as before.
    pub(super) fn join(
        &self,
        enrollment: &Enrollment,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<Enrolled, EnrollmentError> {
        let token = BearerToken::parse(TokenUsage::Join, &enrollment.token);
        let enrolled = match &token {
            Some(token) => self.join_by(token, enrollment, peer, now),
            None => Err(Rejection::of_unknown_token()),
        };
        let who = holder(token.as_ref().map(BearerToken::id));
        match enrolled {
            Ok((record, certificate)) => {
                let response = self.response(&record, certificate);
                self.record(JournalKind::Enroll, who, peer, subject(&record), None, now);
                Ok(response)
            }
            Err(Rejection { error, reason }) => {
                if let Some(reason) = reason {
                    let about = token.as_ref().map(|token| self.intended(token.id()));
                    let about = about.unwrap_or_default();
                    self.record(JournalKind::Enroll, who, peer, about, Some(&reason), now);
                }
                Err(error)
            }
        }
    }

    /// What a machine with this token would become: the subject of its rejection.
    fn intended(&self, token: &TokenId) -> JournalSubject {
        let stored = self.tokens.get(token).ok().flatten();
        let services = stored.map(|stored| few(&stored.value.services)).unwrap_or_default();
        JournalSubject { services, ..JournalSubject::default() }
    }

    fn join_by(
        &self,
        token: &BearerToken,
        enrollment: &Enrollment,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<(JoinRecord, String), Rejection> {
        let key = enrollment.request.key_hash();
        let address = enrollment.address.unwrap_or_else(|| peer.ip()).to_canonical();
        let _enrolling = self.enrolling.lock();
        loop {
            let stored = self.tokens.get(token.id())?;
            let stored = stored.filter(|stored| token.has_hash(&stored.value.secret_hash));
            let stored = stored.ok_or_else(Rejection::of_unknown_token)?;
            match stored.value.state(now) {
                TokenState::Unused => {}
                TokenState::Used => return self.join_again(stored, &key, enrollment, peer, now),
                TokenState::Expired => return Err(Rejection::of_token("the token has expired")),
                TokenState::Revoked => return Err(Rejection::of_token("the token is revoked")),
            }
            check_range(&stored.value, address, peer)?;
            let proxy = ProxyId(Uuid::new_v4());
            let used = TokenUse { at: now, from: peer, key: key.clone(), proxy };
            let token = JoinToken { used: Some(used), ..stored.value };
            // From here on the token is used, even if this process dies before it issues the certificate.
            match self.tokens.put(&token, stored.version) {
                Ok(_) => return self.issue(&token, proxy, address, enrollment, now),
                // Another control plane used or revoked it: what is stored now decides.
                Err(RecordError::Conflict(_)) => {}
                Err(error) => return Err(error.into()),
            }
        }
    }

    /// A used token: the same machine gets the same certificate for a while, and others get nothing.
    fn join_again(
        &self,
        stored: Versioned<JoinToken>,
        key: &KeyHash,
        enrollment: &Enrollment,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<(JoinRecord, String), Rejection> {
        let Some(proxy) = stored.value.repeatable(key, now).map(|used| used.proxy) else {
            let is_same = stored.value.used.as_ref().is_some_and(|used| used.key == *key);
            let who = if is_same { "this machine before" } else { "another machine" };
            tracing::error!(token = %stored.value.id, address = %peer, is_same_key = is_same, "a used token was presented again");
            self.tokens.record_misuse(stored, peer, now);
            return Err(Rejection::of_token(format!("the token was used by {who}")));
        };
        if let Some(record) = self.register.get(proxy) {
            return repeated(&record);
        }
        let address = enrollment.address.unwrap_or_else(|| peer.ip()).to_canonical();
        check_range(&stored.value, address, peer)?;
        self.issue(&stored.value, proxy, address, enrollment, now)
    }

    /// Issues the certificate of a used token, and stores the proxy's record with it.
    fn issue(
        &self,
        token: &JoinToken,
        proxy: ProxyId,
        address: IpAddr,
        enrollment: &Enrollment,
        now: Timestamp,
    ) -> Result<(JoinRecord, String), Rejection> {
        let mesh_address = SocketAddr::new(address, reserved_ports::MESH);
        let new = JoinRecord {
            addresses: token.known_as.clone(),
            machine: token.machine,
            labels: token.labels.clone(),
            locality: token.locality.clone(),
            driver: token.driver.clone(),
            token: Some(token.id.clone()),
            ..JoinRecord::new(proxy, token.services.clone(), mesh_address, now, now)
        };
        let (request, name) = (&enrollment.request, enrollment.name.as_ref());
        self.issue_first(new, request, name, |_| Ok(Vec::new()), now)
    }

    /// Issues the first certificate of a new proxy, and stores its record with it, in one transaction with the records
    /// that `replace` returns for the present ones.
    pub(super) fn issue_first(
        &self,
        new: JoinRecord,
        request: &MachineRequest,
        wanted: Option<&ProxyName>,
        replace: impl Fn(&Records) -> Result<Vec<JoinRecord>, ChangeError>,
        now: Timestamp,
    ) -> Result<(JoinRecord, String), Rejection> {
        let proxy = new.id;
        let certificate = self.authority.lock().issue_proxy_certificate(
            request.pem(),
            proxy,
            &new.services,
            ENROLLED_PROXY_LIFETIME,
            now,
        );
        let certificate =
            certificate.map_err(|error| EnrollmentError::RequestInvalid(chain(&error)))?;
        let new = JoinRecord { certificate_expires_at: certificate.not_after, ..new };
        let new = with_first_certificate(new, &certificate, now);
        let mut stored = new.clone();
        let mut present_record = None;
        let enrolled = self.register.enroll(|present| {
            present_record = present.get(&proxy).cloned();
            if present_record.is_some() {
                // Another control plane has enrolled the same machine at this moment.
                return Ok(Vec::new());
            }
            let mut changed = replace(present)?;
            let named = match (wanted, new.services.first()) {
                (Some(wanted), _) => Ok(Some(name_like(wanted, present, now))),
                (None, Some(first)) => {
                    default_names(first, 1, present).map(|names| names.into_iter().next())
                }
                (None, None) => Ok(None),
            };
            let invalid = |error| ChangeError::Rejected(EnrollmentError::RequestInvalid(error));
            let name = named.map_err(invalid)?;
            stored = JoinRecord { name, ..new.clone() };
            changed.push(stored.clone());
            Ok::<_, ChangeError>(with_unnamed(changed, present, now))
        });
        enrolled.map_err(EnrollmentError::from)?;
        if let Some(record) = present_record {
            let key = request.key_hash();
            if record.credentials.as_ref().is_none_or(|known| known.key != key) {
                let problem =
                    "another request of the machine is answered at this moment: try again";
                return Err(EnrollmentError::Unavailable(problem.to_owned()).into());
            }
            return repeated(&record);
        }
        self.journal.record_issued(CertificateHolder::proxies(&stored.services), 1);
        Ok((stored, certificate.chain))
    }
}

/// The record and the certificate of a machine that repeats its request.
fn repeated(record: &JoinRecord) -> Result<(JoinRecord, String), Rejection> {
    if let Some(revocation) = &record.revoked {
        return Err(Rejection::of_token(format!("its proxy was {revocation}")));
    }
    let current = record.credentials.as_ref().map(|credentials| &credentials.current);
    match current.and_then(|current| current.chain.clone()) {
        Some(chain) => Ok((record.clone(), chain)),
        None => Err(Rejection::of_token("the certificate of its proxy is in use")),
    }
}

/// Rejects an address of the proxy, or of its connection, that the token does not allow. Of the connection too: else a
/// token with a range could be used from anywhere, by a machine that states an address of the range.
fn check_range(
    token: &JoinToken,
    address: IpAddr,
    peer: SocketAddr,
) -> Result<(), EnrollmentError> {
    check_address(address).map_err(EnrollmentError::AddressRejected)?;
    let range = token.addresses.map(|range| range.to_string()).unwrap_or_default();
    let from = peer.ip().to_canonical();
    if !token.allows(from) {
        let problem = format!(
            "the token does not allow connections from {from}, only from {range}: create one with a range that has the addresses of the machine and of its connection (`--address`)"
        );
        return Err(EnrollmentError::AddressRejected(problem));
    }
    if !token.allows(address) {
        let problem = format!(
            "the token does not allow the address {address}: state one in {range} (`--address`)"
        );
        return Err(EnrollmentError::AddressRejected(problem));
    }
    Ok(())
}
