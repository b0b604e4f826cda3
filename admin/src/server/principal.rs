//! Who sends a request, and what a role may do.
//!
//! It decides nothing about credentials: each listener attaches the principal, and the table of operations compares it
//! with the permission of each.

use std::fmt;
use std::net::SocketAddr;

use super::ApiError;
use super::sockets::SocketListener;
use axum::extract::FromRequestParts;
use axum::extract::connect_info::Connected;
use axum::http::request::Parts;
use axum::serve::IncomingStream;
use ironmesh_catalog::{OperatorName, OperatorRole, TokenId};

/// Who sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Principal {
    /// The person or program.
    pub identity: Identity,
    /// Its role.
    pub role: OperatorRole,
    /// The session of a browser; none without one.
    pub session: Option<TokenId>,
    /// Whether it may only read, whatever its role.
    pub read_only: bool,
    /// The address of the client; none on a socket.
    pub address: Option<SocketAddr>,
}

/// The person or program that sends a request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Identity {
    /// A user of the control plane's machine, on a socket, as the kernel reports it, not as the request states.
    User {
        /// The user's id; none if the kernel does not report it.
        uid: Option<u32>,
    },
    /// Any user of the control plane's machine, on the admin port.
    Local,
    /// The owner of the admin socket, by a session of a browser on the network.
    LoggedInOwner {
        /// The user's id; none if the kernel did not report it.
        uid: Option<u32>,
    },
    /// An operator who has a credential of the mesh.
    Operator {
        /// The operator's name.
        name: OperatorName,
        /// The id of the credential.
        credential: String,
    },
}

impl Principal {
    /// The owner of the admin socket, who may do everything.
    pub const fn owner(uid: Option<u32>) -> Self {
        let identity = Identity::User { uid };
        let role = OperatorRole::Admin;
        Self { identity, role, session: None, read_only: false, address: None }
    }

    /// A user of the socket for a group.
    pub const fn member(uid: Option<u32>) -> Self {
        let identity = Identity::User { uid };
        let role = OperatorRole::Operator;
        Self { identity, role, session: None, read_only: true, address: None }
    }

    /// A user of the admin port.
    pub const fn local() -> Self {
        let (identity, role) = (Identity::Local, OperatorRole::Viewer);
        Self { identity, role, session: None, read_only: true, address: None }
    }

    /// Whether the principal may do what needs `permission`.
    pub fn may(&self, permission: Permission) -> bool {
        let is_allowed = permission.least_role().is_none_or(|least| self.role >= least);
        is_allowed && (permission.is_read() || !self.read_only)
    }

    /// Why the principal may not do what needs `permission`, and what helps.
    pub(super) fn rejection(&self, permission: Permission, operation: &str) -> String {
        let least = permission.least_role().unwrap_or(OperatorRole::Viewer);
        match &self.identity {
            Identity::Local => format!(
                "the admin port only reads, and the operation `{operation}` needs the role {least}: use the admin \
                 socket as the owner of the state folder, or `listen.api` with a credential"
            ),
            _ if self.role >= least => format!(
                "the operation `{operation}` is a change, and this socket only reads: use the admin socket \
                 as the owner of the state folder"
            ),
            // The role of its user may be higher.
            _ if self.session.is_some() => format!(
                "the operation `{operation}` needs the role {least}, and this session of {self} has the role {}: log in \
                 again by `ironmesh ui --role {least}`, which needs that role for the user, too",
                self.role
            ),
            _ => format!(
                "the operation `{operation}` needs the role {least}, and {self} has the role {}: an admin revokes \
                 the credentials (`ironmesh operator revoke`) and issues one with a different role",
                self.role
            ),
        }
    }
}

impl fmt::Display for Principal {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match &self.identity {
            Identity::User { uid: Some(uid) } | Identity::LoggedInOwner { uid: Some(uid) } => {
                write!(f, "the user with uid {uid}")
            }
            Identity::User { uid: None } | Identity::LoggedInOwner { uid: None } => {
                f.write_str("an unknown user")
            }
            Identity::Local => f.write_str("a user of the admin port"),
            Identity::Operator { name, .. } => write!(f, "operator {name}"),
        }
    }
}

/// What an operation needs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Permission {
    /// Nothing: also a client without a credential may do it.
    Probe,
    /// To read the state of the mesh, which has positions and names of policy, and never its text.
    ReadState,
    /// To read the text of policy.
    ReadPolicy,
    /// To read the journal, which names persons and addresses.
    ReadJournal,
    /// To read which credentials exist; never their secrets.
    ReadAccess,
    /// To log in by a browser, and to log out.
    LogIn,
    /// To change machines and their services.
    ChangeMesh,
    /// To change policy.
    ChangePolicy,
    /// To give and take access, and to export the mesh with its keys.
    Administer,
}

impl Permission {
    /// All permissions.
    pub const ALL: [Self; 9] = [
        Self::Probe,
        Self::ReadState,
        Self::ReadPolicy,
        Self::ReadJournal,
        Self::ReadAccess,
        Self::LogIn,
        Self::ChangeMesh,
        Self::ChangePolicy,
        Self::Administer,
    ];

    /// The lowest role that has it; none if a client needs no role.
    pub const fn least_role(self) -> Option<OperatorRole> {
        Some(match self {
            Self::Probe => return None,
            Self::ReadState | Self::LogIn => OperatorRole::Viewer,
            Self::ReadPolicy
            | Self::ReadJournal
            | Self::ReadAccess
            | Self::ChangeMesh
            | Self::ChangePolicy => OperatorRole::Operator,
            Self::Administer => OperatorRole::Admin,
        })
    }

    /// Whether it only reads.
    pub const fn is_read(self) -> bool {
        !matches!(self, Self::LogIn | Self::ChangeMesh | Self::ChangePolicy | Self::Administer)
    }

    /// The word for it in the reference of roles.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Probe => "probe",
            Self::ReadState => "read state",
            Self::ReadPolicy => "read policy",
            Self::ReadJournal => "read the journal",
            Self::ReadAccess => "read access",
            Self::LogIn => "log in",
            Self::ChangeMesh => "change the mesh",
            Self::ChangePolicy => "change policy",
            Self::Administer => "administer",
        }
    }
}

/// The handler of an operation that everybody may do has no principal.
impl<S: Sync> FromRequestParts<S> for Principal {
    type Rejection = ApiError;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, ApiError> {
        parts.extensions.get().cloned().ok_or_else(ApiError::unauthenticated)
    }
}

/// The user of a connection to a socket.
#[derive(Debug, Clone, Copy)]
pub(super) struct SocketUser(pub(super) Option<u32>);

impl Connected<IncomingStream<'_, SocketListener>> for SocketUser {
    fn connect_info(stream: IncomingStream<'_, SocketListener>) -> Self {
        Self(stream.io().stream().peer_cred().ok().map(|peer| peer.uid()))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn rejected_session_gets_the_advice_to_log_in_again() {
        let identity = Identity::Operator {
            name: "ann".parse().unwrap(),
            credential: "5f0c9a1be2d34e67".to_owned(),
        };
        let viewer = Principal {
            identity,
            role: OperatorRole::Viewer,
            read_only: false,
            ..Principal::owner(None)
        };
        let text = viewer.rejection(Permission::ReadPolicy, "policy_documents");
        assert!(text.contains("operator ann has the role viewer: an admin revokes"), "{text}");
        let session = Some("5f0c9a1be2d34e67".parse().unwrap());
        let text =
            Principal { session, ..viewer }.rejection(Permission::ReadPolicy, "policy_documents");
        assert!(text.contains("this session of operator ann has the role viewer"), "{text}");
        assert!(text.contains("`ironmesh ui --role operator`"), "{text}");
        assert!(!text.contains("revoke"), "{text}");
    }
}
