//! Enrollment by a token: its use is stored before the certificate is issued, so that it works once.

use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::{
    JoinRecord, JoinToken, JournalKind, JournalSubject, KeyHash, ProxyId, TokenState, TokenUse,
    reserved_ports,
};
use ironmesh_cert::{ENROLLED_PROXY_LIFETIME, ProxyCertificate};
use ironmesh_enrollment::{Enrolled, Enrollment, EnrollmentError, OneTimeToken};
use ironmesh_store::{RecordError, Versioned};
use jiff::Timestamp;
use uuid::Uuid;

use super::{
    ChangeError, MachineEnrollment, check_address, holder, subject, unavailable,
    with_first_certificate,
};
use crate::proxy_names::default_names;
use ironmesh_catalog::text::chain;

/// Why a machine is not enrolled: what it is told, and what the journal records.
struct Rejection {
    error: EnrollmentError,
    reason: String,
}

impl Rejection {
    /// The machine is told only that the token is of no use.
    fn of_token(reason: impl Into<String>) -> Self {
        Self { error: EnrollmentError::TokenRejected, reason: reason.into() }
    }
}

impl From<EnrollmentError> for Rejection {
    fn from(error: EnrollmentError) -> Self {
        Self { reason: error.to_string(), error }
    }
}

impl From<RecordError> for Rejection {
    fn from(error: RecordError) -> Self {
        Self { error: unavailable(&error), reason: chain(&error) }
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
        let token = OneTimeToken::parse(&enrollment.token);
        let enrolled = match &token {
            Some(token) => self.join_by(token, enrollment, peer, now),
            None => Err(Rejection::of_token("the text is no token: it may be truncated")),
        };
        let who = holder(token.as_ref().map(OneTimeToken::id));
        match enrolled {
            Ok((record, certificate)) => {
                let response = self.response(&record, certificate);
                self.record(JournalKind::Enroll, who, peer, subject(&record), None, now);
                Ok(response)
            }
            Err(Rejection { error, reason }) => {
                let none = JournalSubject::default();
                self.record(JournalKind::Enroll, who, peer, none, Some(&reason), now);
                Err(error)
            }
        }
    }

    fn join_by(
        &self,
        token: &OneTimeToken,
        enrollment: &Enrollment,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<(JoinRecord, String), Rejection> {
        let key = enrollment.request.key_hash();
        let address = enrollment.address.unwrap_or_else(|| peer.ip()).to_canonical();
        let _enrolling = self.enrolling.lock();
        let stored = self.tokens.get(token.id())?;
        let stored = stored.filter(|stored| token.has_hash(&stored.value.secret_hash));
        let stored = stored.ok_or_else(|| Rejection::of_token("no such token"))?;
        match stored.value.state(now) {
            TokenState::Unused => {}
            TokenState::Used => return self.join_again(stored, &key, enrollment, peer, now),
            TokenState::Expired => return Err(Rejection::of_token("the token has expired")),
            TokenState::Revoked => return Err(Rejection::of_token("the token is revoked")),
        }
        check_range(&stored.value, address, peer)?;
        let used = TokenUse {
            at: now,
            from: peer,
            key,
            proxy: ProxyId(Uuid::new_v4()),
            certificate: None,
        };
        let token = JoinToken { used: Some(used.clone()), ..stored.value };
        // From here on the token is used, even if this process dies before it issues the certificate.
        let version = self.tokens.put(&token, stored.version).map_err(|error| match error {
            // Another control plane was first.
            RecordError::Conflict(_) => Rejection::of_token("the token was used at this moment"),
            error => error.into(),
        })?;
        self.issue(Versioned { value: token, version }, &used, address, enrollment, now)
    }

    /// A used token: the same machine gets the same certificate for a while, and any other one nothing.
    fn join_again(
        &self,
        stored: Versioned<JoinToken>,
        key: &KeyHash,
        enrollment: &Enrollment,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<(JoinRecord, String), Rejection> {
        let Some(used) = stored.value.repeatable(key, now).cloned() else {
            let is_same = stored.value.used.as_ref().is_some_and(|used| used.key == *key);
            if is_same {
                return Err(Rejection::of_token("the token was used by this machine before"));
            }
            let id = stored.value.id.clone();
            tracing::error!(token = %id, address = %peer, "a used token was presented again, with another key");
            self.tokens.record_misuse(stored, peer, now)?;
            return Err(Rejection::of_token("the token was used by another machine"));
        };
        let record = self.register.get(used.proxy);
        match (record, used.certificate.clone()) {
            (Some(record), Some(certificate)) => Ok(((*record).clone(), certificate)),
            (Some(record), None) => {
                // The control plane ended before it stored the certificate, which nobody has.
                let address = record.mesh_address.ip();
                self.issue(stored, &used, address, enrollment, now)
            }
            (None, _) => {
                let address = enrollment.address.unwrap_or_else(|| peer.ip()).to_canonical();
                check_range(&stored.value, address, peer)?;
                self.issue(stored, &used, address, enrollment, now)
            }
        }
    }

    /// Issues the certificate of a used token, and stores the proxy's record.
    fn issue(
        &self,
        stored: Versioned<JoinToken>,
        used: &TokenUse,
        address: IpAddr,
        enrollment: &Enrollment,
        now: Timestamp,
    ) -> Result<(JoinRecord, String), Rejection> {
        let token = stored.value;
        let certificate = self.authority.lock().issue_proxy_certificate(
            enrollment.request.pem(),
            used.proxy,
            &token.services,
            ENROLLED_PROXY_LIFETIME,
            now,
        );
        let certificate =
            certificate.map_err(|error| EnrollmentError::RequestInvalid(chain(&error)))?;
        let record = self.store_record(&token, used, address, &certificate, now)?;
        let used = TokenUse { certificate: Some(certificate.chain.clone()), ..used.clone() };
        let token = JoinToken { used: Some(used), ..token };
        if let Err(error) = self.tokens.put(&token, stored.version) {
            // The machine has its certificate. Only a repeated request gets another one.
            tracing::warn!(error = chain(&error), token = %token.id, "cannot store the certificate with its token");
        }
        Ok((record, certificate.chain))
    }

    fn store_record(
        &self,
        token: &JoinToken,
        used: &TokenUse,
        address: IpAddr,
        certificate: &ProxyCertificate,
        now: Timestamp,
    ) -> Result<JoinRecord, EnrollmentError> {
        let mesh_address = SocketAddr::new(address, reserved_ports::MESH);
        let new = JoinRecord {
            addresses: token.known_as.clone(),
            machine: token.machine,
            labels: token.labels.clone(),
            locality: token.locality.clone(),
            token: Some(token.id.clone()),
            ..JoinRecord::new(
                used.proxy,
                token.services.clone(),
                mesh_address,
                now,
                certificate.not_after,
            )
        };
        let new = with_first_certificate(new, certificate, now);
        let mut stored = new.clone();
        self.register.enroll(|present| {
            let name = if let Some(record) = present.get(&used.proxy) {
                record.name.clone()
            } else {
                let first = token.services.first();
                let named = first.map(|first| default_names(first, 1, present)).transpose();
                let invalid = |error| ChangeError::Rejected(EnrollmentError::RequestInvalid(error));
                named.map_err(invalid)?.and_then(|names| names.into_iter().next())
            };
            stored = JoinRecord { name, ..new.clone() };
            Ok::<_, ChangeError>(vec![stored.clone()])
        })?;
        Ok(stored)
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
