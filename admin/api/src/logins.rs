//! Logins of browsers: links that are used once, and sessions.

use ironmesh_catalog::{Login, LoginState, LoginUser, OperatorRole, Secret, TokenId};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::join_record::RevocationView;

/// A request for a login link.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct LinkRequest {
    /// The most that the session may do; without it, what the requesting operator may do.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub role: Option<OperatorRole>,
}

/// A login link, which can be used once.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct LoginLink {
    /// The id of the login.
    pub id: TokenId,
    /// The role of the session.
    pub role: OperatorRole,
    /// The link at each address of the API for operators; any of them can be used. They are shown here only.
    pub links: Vec<Secret>,
    /// When it expires.
    pub expires_at: Timestamp,
}

/// A request to log in, which the response answers with a cookie.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case", deny_unknown_fields)]
pub enum LoginRequest {
    /// By the secret of a link: the part behind `#`.
    Link(Secret),
    /// By the token of an operator.
    Token(Secret),
}

/// The logins of the mesh.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionList {
    /// The links and sessions, the newest first.
    pub sessions: Vec<SessionView>,
}

/// A login: a link until it is used, and a session from then on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SessionView {
    /// Its id.
    pub id: TokenId,
    /// Who logs in, for people.
    pub user: String,
    /// The most that the session may do.
    pub role: OperatorRole,
    /// Its state.
    pub state: LoginState,
    /// When the link or the session was created.
    pub created_at: Timestamp,
    /// When the link was used.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Timestamp>,
    /// When the link expires, or the session if the link is used.
    pub expires_at: Timestamp,
    /// Its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<RevocationView>,
}

impl SessionView {
    /// The view of a login at `now`.
    pub fn new(login: &Login, now: Timestamp) -> Self {
        let user = match &login.user {
            LoginUser::Owner { uid: Some(uid) } => format!("the user with uid {uid}"),
            LoginUser::Owner { uid: None } => "the owner of the admin socket".to_owned(),
            LoginUser::Operator { name, .. } => format!("operator {name}"),
        };
        Self {
            id: login.id.clone(),
            user,
            role: login.role,
            state: login.state(now),
            created_at: login.created_at,
            used_at: login.used_at,
            expires_at: login.expires_at,
            revoked: login.revoked.clone().map(Into::into),
        }
    }
}
