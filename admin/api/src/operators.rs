//! Operators and their credentials.

use ironmesh_catalog::{OperatorName, OperatorRecord, OperatorRole, Secret, SpiffeId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::join_record::RevocationView;

/// The longest lifetime of a credential of an operator, in seconds.
pub const MAX_CREDENTIAL_LIFETIME: u64 = 90 * 86_400;

/// The most operators of a mesh.
pub const MAX_OPERATORS: usize = 1_000;

/// The operators who have or had credentials.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorList {
    /// The operators, by name.
    pub operators: Vec<OperatorView>,
}

/// An operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct OperatorView {
    /// The name.
    pub name: OperatorName,
    /// The role, which all credentials have.
    pub role: OperatorRole,
    /// Whether one of the credentials can be used.
    pub active: bool,
    /// The credentials, the oldest first.
    pub credentials: Vec<CredentialView>,
}

/// A credential of an operator, without its secret.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct CredentialView {
    /// Its id: the serial number of a certificate, or the public part of a token.
    pub id: String,
    /// `certificate` or `token`.
    pub kind: String,
    /// `valid`, `expired` or `revoked`.
    pub state: String,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Who issued it.
    pub issued_by: String,
    /// Its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<RevocationView>,
}

impl OperatorView {
    /// The view of a record at `now`.
    pub fn new(record: &OperatorRecord, now: Timestamp) -> Self {
        let credentials = record.credentials.iter().map(|credential| CredentialView {
            id: credential.id.clone(),
            kind: credential.kind().to_owned(),
            state: credential.state(now).word().to_owned(),
            issued_at: credential.issued_at,
            expires_at: credential.expires_at,
            issued_by: credential.issued_by.clone(),
            revoked: credential.revoked.clone().map(Into::into),
        });
        Self {
            name: record.name.clone(),
            role: record.role,
            active: record.is_active(now),
            credentials: credentials.collect(),
        }
    }
}

/// A request for a credential of an operator, who is new, or has this role already.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct CredentialRequest {
    /// The operator's name.
    pub name: OperatorName,
    /// The operator's role.
    pub role: OperatorRole,
    /// How long the credential is valid, in seconds: at least 1, and at most [`MAX_CREDENTIAL_LIFETIME`].
    #[schema(minimum = 1, maximum = 7_776_000)]
    pub lifetime: u64,
    /// The certificate signing request (PEM) for a certificate; none for a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate_request: Option<String>,
}

/// A new credential of an operator.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct IssuedCredential {
    /// The operator's name.
    pub name: OperatorName,
    /// The operator's role.
    pub role: OperatorRole,
    /// The id of the credential.
    pub id: String,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The certificate and the intermediate that signed it (PEM); none for a token.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub certificate: Option<String>,
    /// The token, which is shown here only; none for a certificate.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// The roots of the mesh (PEM), by which a client verifies the control plane.
    pub roots: String,
    /// The SPIFFE ID of the control plane.
    pub control_plane: SpiffeId,
    /// The addresses of the API for operators; none if `listen.api` is not set.
    pub servers: Vec<(String, u16)>,
}

/// A request to revoke the credentials of an operator, or one of them.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct RevokeOperatorRequest {
    /// The id of the one credential; all of the operator without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub credential: Option<String>,
    /// The reason.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}
