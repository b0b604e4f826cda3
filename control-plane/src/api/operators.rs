//! The access of operators: issues and revokes their credentials, and records each in the journal.

use std::net::SocketAddr;
use std::time::Duration;

use ironmesh_admin::{
    ApiError, Authenticated, Identity, OperatorAccess, PresentedCredential, Principal,
};
use ironmesh_api::{
    CredentialRequest, IssuedCredential, MAX_CREDENTIAL_LIFETIME, OperatorList, OperatorView,
    RevokeOperatorRequest,
};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{OperatorCredential, OperatorName, Revocation, Secret, UnknownFields};
use ironmesh_cert::{BearerToken, IssueError, MachineRequest, RequestError, TokenUsage};
use jiff::{SignedDuration, Timestamp};

use super::{RunningControlPlane, check_lines};
use crate::journal;
use crate::operators::{CredentialHolder, LastAdmin};

impl OperatorAccess for RunningControlPlane {
    fn operators(&self) -> OperatorList {
        let now = Timestamp::now();
        let operators = self.operators.list();
        OperatorList {
            operators: operators.iter().map(|record| OperatorView::new(record, now)).collect(),
        }
    }

    fn issue_credential(
        &self,
        principal: &Principal,
        request: &CredentialRequest,
    ) -> Result<IssuedCredential, ApiError> {
        let result = self.new_credential(principal, request);
        let message = result.as_ref().ok().map(|issued| {
            let kind = if issued.token.is_some() { "token" } else { "certificate" };
            format!(
                "{kind} {} with role {}, expires {:.0}",
                issued.id, issued.role, issued.expires_at
            )
        });
        let error = result.as_ref().err();
        let entry = journal::operator_change(principal, &request.name, message.as_deref(), error);
        self.journal.record_and_wait(entry);
        result
    }

    fn revoke_operator(
        &self,
        principal: &Principal,
        name: &OperatorName,
        request: &RevokeOperatorRequest,
    ) -> Result<OperatorView, ApiError> {
        let result = self.revoke_credentials(principal, name, request);
        let what = request.credential.as_deref().unwrap_or("all credentials");
        let reason = request.reason.as_deref().unwrap_or("no reason given");
        let message = format!("revoked {what}: {reason}");
        let error = result.as_ref().err();
        let entry = journal::operator_change(principal, name, Some(&message), error);
        self.journal.record_and_wait(entry);
        result
    }

    fn authenticate(&self, presented: &PresentedCredential<'_>) -> Result<Authenticated, ApiError> {
        let now = Timestamp::now();
        let holder = match presented {
            PresentedCredential::Certificate(leaf) => self.operators.of_certificate(leaf, now)?,
            PresentedCredential::Token(token) => self.operators.of_token(token, now)?,
            PresentedCredential::Session(token) => return self.user_of_session(token, now),
        };
        let CredentialHolder { name, role, credential } = holder;
        Ok(Authenticated { identity: Identity::Operator { name, credential }, role, session: None })
    }
}

impl RunningControlPlane {
    /// Issues a credential. Blocks on the store.
    fn new_credential(
        &self,
        principal: &Principal,
        request: &CredentialRequest,
    ) -> Result<IssuedCredential, ApiError> {
        if !(1..=MAX_CREDENTIAL_LIFETIME).contains(&request.lifetime) {
            let days = MAX_CREDENTIAL_LIFETIME / 86_400;
            return Err(ApiError::BadRequest(format!(
                "a credential is valid for 1 second to {days} days"
            )));
        }
        let now = Timestamp::now();
        let made = match &request.certificate_request {
            Some(csr) => self.certificate(request, csr, now),
            None => token(request, now),
        };
        let NewCredential { id, secret_hash, expires_at, certificate, token } = made?;
        let credential = OperatorCredential {
            id: id.clone(),
            secret_hash,
            issued_at: now,
            expires_at,
            issued_by: journal::principal_name(principal).unwrap_or_else(|| "unknown".to_owned()),
            revoked: None,
            unknown: UnknownFields::default(),
        };
        // A credential that is not stored cannot be used, and no client gets it.
        self.operators.add(&request.name, request.role, &credential)?;
        Ok(IssuedCredential {
            name: request.name.clone(),
            role: request.role,
            id,
            expires_at,
            certificate,
            token,
            roots: self.authority.lock().trust_bundle().roots,
            control_plane: self.mesh.trust_domain.control_plane().0,
            servers: self.servers(),
        })
    }

    fn certificate(
        &self,
        request: &CredentialRequest,
        csr: &str,
        now: Timestamp,
    ) -> Result<NewCredential, ApiError> {
        let invalid = |error: &RequestError| ApiError::BadRequest(chain(error));
        let csr = MachineRequest::parse(csr).map_err(|error| invalid(&error))?;
        let lifetime = Duration::from_secs(request.lifetime);
        let issued = self
            .authority
            .lock()
            .issue_operator_certificate(csr.pem(), &request.name, lifetime, now)
            .map_err(|error| match error {
                IssueError::Request(error) => invalid(&error),
                other => ApiError::Internal(chain(&other)),
            })?;
        Ok(NewCredential {
            id: issued.serial,
            secret_hash: None,
            expires_at: issued.not_after,
            certificate: Some(issued.chain),
            token: None,
        })
    }

    /// Where operators reach this API; none if it is off, or if it listens on all addresses and `advertise` names none.
    pub(super) fn servers(&self) -> Vec<(String, u16)> {
        let is_known = |address: &SocketAddr| {
            !address.ip().is_unspecified() || !self.xds_addresses.advertise.is_empty()
        };
        let address = self.api_address.filter(is_known);
        address.map(|address| self.xds_addresses.of_enrollment(address)).unwrap_or_default()
    }

    /// Revokes credentials. Blocks on the store.
    fn revoke_credentials(
        &self,
        principal: &Principal,
        name: &OperatorName,
        request: &RevokeOperatorRequest,
    ) -> Result<OperatorView, ApiError> {
        check_lines(&[&request.reason])?;
        let now = Timestamp::now();
        let revocation = Revocation::by_operator(now, request.reason.clone());
        let last_admin = match principal.identity {
            Identity::User { .. } => LastAdmin::MayGo,
            Identity::Local | Identity::LoggedInOwner { .. } | Identity::Operator { .. } => {
                LastAdmin::Stays
            }
        };
        let id = request.credential.as_deref();
        let record = self.operators.revoke(name, id, &revocation, last_admin)?;
        Ok(OperatorView::new(&record, now))
    }
}

/// A credential that is not stored yet.
struct NewCredential {
    id: String,
    secret_hash: Option<String>,
    expires_at: Timestamp,
    certificate: Option<String>,
    token: Option<Secret>,
}

fn token(request: &CredentialRequest, now: Timestamp) -> Result<NewCredential, ApiError> {
    let token = BearerToken::generate(TokenUsage::Operator)
        .map_err(|_| ApiError::Internal("no random bytes for a token".to_owned()))?;
    let lifetime = i64::try_from(request.lifetime).unwrap_or(i64::MAX);
    Ok(NewCredential {
        id: token.id().to_string(),
        secret_hash: Some(token.secret_hash()),
        expires_at: now + SignedDuration::from_secs(lifetime),
        certificate: None,
        token: Some(token.text()),
    })
}
