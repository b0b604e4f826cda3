//! The interface of a control plane about the access of operators, and its handlers.

use axum::extract::State;
use ironmesh_api::{
    CredentialRequest, IssuedCredential, OperatorList, OperatorView, RevokeOperatorRequest,
};
use ironmesh_catalog::{OperatorName, OperatorRole, Secret, TokenId};

use super::error::{Body, Parameter};
use super::principal::Identity;
use super::work_queues::{Changes, JsonBody, Reads};
use super::{ApiError, Principal, Shared};

/// The interface of a running control plane about the access of operators.
pub trait OperatorAccess: Send + Sync + 'static {
    /// The operators and their credentials.
    fn operators(&self) -> OperatorList;

    /// Issues a certificate or a token for an operator. May block on the store.
    fn issue_credential(
        &self,
        principal: &Principal,
        request: &CredentialRequest,
    ) -> Result<IssuedCredential, ApiError>;

    /// Revokes the credentials of an operator. May block on the store.
    fn revoke_operator(
        &self,
        principal: &Principal,
        name: &OperatorName,
        request: &RevokeOperatorRequest,
    ) -> Result<OperatorView, ApiError>;

    /// Who presents a credential, if it can be used now.
    fn authenticate(&self, presented: &PresentedCredential<'_>) -> Result<Authenticated, ApiError>;
}

/// What a client of the network presents.
#[derive(Debug, Clone, Copy)]
pub enum PresentedCredential<'a> {
    /// A client certificate (DER), which the TLS handshake has verified below the mesh's roots.
    Certificate(&'a [u8]),
    /// The token of an `Authorization` header.
    Token(&'a Secret),
    /// The token of a browser's session.
    Session(&'a Secret),
}

/// Who has presented a valid credential.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Authenticated {
    /// The person or program.
    pub identity: Identity,
    /// The role.
    pub role: OperatorRole,
    /// The session of a browser; none without one.
    pub session: Option<TokenId>,
}

pub(super) async fn operators(
    State(control_plane): State<Shared>,
    reads: Reads,
) -> Result<JsonBody<OperatorList>, ApiError> {
    reads.answer(move || Ok(control_plane.operators())).await
}

pub(super) async fn issue_credential(
    State(control_plane): State<Shared>,
    changes: Changes,
    Body(request): Body<CredentialRequest>,
) -> Result<JsonBody<IssuedCredential>, ApiError> {
    changes.answer(move |principal| control_plane.issue_credential(principal, &request)).await
}

pub(super) async fn revoke_operator(
    State(control_plane): State<Shared>,
    changes: Changes,
    Parameter(name): Parameter<OperatorName>,
    Body(request): Body<RevokeOperatorRequest>,
) -> Result<JsonBody<OperatorView>, ApiError> {
    changes.answer(move |principal| control_plane.revoke_operator(principal, &name, &request)).await
}
