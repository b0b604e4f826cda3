//! Logins of browsers: a link that is used once, and the session that it becomes.
//!
//! It owns their stored form. It never decides what a role allows.

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::operator::{OperatorName, OperatorRole};
use crate::proxy::Revocation;
use crate::token_id::TokenId;
use crate::unknown_fields::UnknownFields;

/// A login as the store keeps it: a link until it is used, and a session from then on. One record has both, so that no two
/// control planes make two sessions of one link.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Login {
    /// Its id, which is the public part of the link and of the session's token.
    pub id: TokenId,
    /// Who logs in.
    pub user: LoginUser,
    /// The most that the session may do: an operator's role at the moment limits it further.
    pub role: OperatorRole,
    /// The SHA-256 of the secret, in hexadecimal: of the link, and of the session's token once the link is used.
    pub secret_hash: String,
    /// When the link was created.
    pub created_at: Timestamp,
    /// When the link was used; none until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used_at: Option<Timestamp>,
    /// When the link expires, or the session if the link is used.
    pub expires_at: Timestamp,
    /// Its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
    /// The fields of newer versions.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// Who logs in.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LoginUser {
    /// The owner of the admin socket.
    Owner {
        /// The user's id; none if the kernel did not report it.
        uid: Option<u32>,
    },
    /// An operator of the mesh, as long as the credential is valid by which the login was made.
    Operator {
        /// The operator's name.
        name: OperatorName,
        /// The id of the credential.
        credential: String,
    },
}

impl LoginUser {
    /// Whether it is the same user, also by a different credential.
    pub fn is_same_user(&self, other: &Self) -> bool {
        match (self, other) {
            (Self::Owner { uid }, Self::Owner { uid: other }) => uid == other,
            (Self::Operator { name, .. }, Self::Operator { name: other, .. }) => name == other,
            (Self::Owner { .. }, Self::Operator { .. })
            | (Self::Operator { .. }, Self::Owner { .. }) => false,
        }
    }
}

/// The state of a login.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum LoginState {
    /// A link that can be used.
    Link,
    /// A session that can be used.
    Session,
    /// Its time is over, or that of the credential by which it was made.
    Expired,
    /// It was revoked, its user has logged out, or the credential was revoked by which it was made.
    Revoked,
}

impl Login {
    /// Its state at `now`.
    pub fn state(&self, now: Timestamp) -> LoginState {
        match (&self.revoked, self.used_at) {
            (Some(_), _) => LoginState::Revoked,
            _ if now >= self.expires_at => LoginState::Expired,
            (None, None) => LoginState::Link,
            (None, Some(_)) => LoginState::Session,
        }
    }

    /// Whether it can be used at `now`, as a link or as a session.
    pub fn is_usable(&self, now: Timestamp) -> bool {
        matches!(self.state(now), LoginState::Link | LoginState::Session)
    }

    /// When it ended, or ends.
    pub fn end(&self) -> Timestamp {
        self.revoked.as_ref().map_or(self.expires_at, |revoked| revoked.at.min(self.expires_at))
    }
}

impl LoginState {
    /// The word for it, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Link => "link",
            Self::Session => "session",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

#[cfg(test)]
mod tests {
    use jiff::SignedDuration;

    use super::*;

    #[test]
    fn user_is_the_same_by_each_credential() {
        let operator = |name: &str, credential: &str| LoginUser::Operator {
            name: name.parse().unwrap(),
            credential: credential.to_owned(),
        };
        let owner = |uid| LoginUser::Owner { uid };
        assert!(operator("ann", "1").is_same_user(&operator("ann", "2")));
        assert!(!operator("ann", "1").is_same_user(&operator("ben", "1")));
        assert!(owner(Some(0)).is_same_user(&owner(Some(0))));
        assert!(!owner(Some(0)).is_same_user(&owner(None)));
        assert!(!owner(None).is_same_user(&operator("ann", "1")));
    }

    #[test]
    fn states_follow_use_revocation_and_time() {
        let start = Timestamp::UNIX_EPOCH;
        let end = start + SignedDuration::from_mins(5);
        let link = Login {
            id: "0123456789abcdef".parse().unwrap(),
            user: LoginUser::Owner { uid: Some(0) },
            role: OperatorRole::Viewer,
            secret_hash: String::new(),
            created_at: start,
            used_at: None,
            expires_at: end,
            revoked: None,
            unknown: UnknownFields::default(),
        };
        assert_eq!(link.state(start), LoginState::Link);
        assert_eq!(link.state(end), LoginState::Expired);
        let session = Login { used_at: Some(start), ..link };
        assert_eq!(session.state(start), LoginState::Session);
        assert_eq!(session.end(), end);
        let revoked = Revocation::by_operator(start, None);
        let revoked = Login { revoked: Some(revoked), ..session };
        assert_eq!((revoked.state(end), revoked.end()), (LoginState::Revoked, start));
        for state in
            [LoginState::Link, LoginState::Session, LoginState::Expired, LoginState::Revoked]
        {
            assert_eq!(serde_json::to_string(&state).unwrap(), format!("\"{}\"", state.word()));
        }
    }
}
