//! Operators of the mesh: their names, roles and credentials.
//!
//! It owns their stored form. It never decides what a role allows: the admin API does, operation by operation.

use std::fmt;
use std::str::FromStr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use crate::name::InvalidName;
use crate::proxy::Revocation;
use crate::proxy_name::problem_in_hostname;
use crate::unknown_fields::UnknownFields;

/// The role of an operator. A higher one may do all that a lower one may.
#[derive(
    Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema,
)]
#[serde(rename_all = "snake_case")]
pub enum OperatorRole {
    /// Reads the state of the mesh, and no policy.
    Viewer,
    /// Also reads policy and the journal, and changes the mesh.
    Operator,
    /// Also gives and takes access, and exports the mesh.
    Admin,
}

impl OperatorRole {
    /// All roles, from the lowest.
    pub const ALL: [Self; 3] = [Self::Viewer, Self::Operator, Self::Admin];

    /// The word for it, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Viewer => "viewer",
            Self::Operator => "operator",
            Self::Admin => "admin",
        }
    }
}

impl fmt::Display for OperatorRole {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.word())
    }
}

impl FromStr for OperatorRole {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let role = Self::ALL.into_iter().find(|role| role.word() == text);
        role.ok_or_else(|| format!("expected one of: {}", Self::ALL.map(Self::word).join(", ")))
    }
}

/// The name of an operator: as that of a proxy, and at most 63 characters.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(try_from = "String", into = "String")]
pub struct OperatorName(Box<str>);

impl OperatorName {
    /// The longest name, in characters: it fits into the common name of a certificate.
    pub const MAX_LENGTH: usize = 63;

    /// The name as text.
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl FromStr for OperatorName {
    type Err = InvalidName;

    fn from_str(text: &str) -> Result<Self, InvalidName> {
        let invalid = |problem| InvalidName { text: text.to_owned(), problem };
        if text.len() > Self::MAX_LENGTH {
            return Err(invalid("is longer than 63 characters"));
        }
        problem_in_hostname(text).map_or_else(|| Ok(Self(text.into())), |p| Err(invalid(p)))
    }
}

impl TryFrom<String> for OperatorName {
    type Error = InvalidName;

    fn try_from(text: String) -> Result<Self, InvalidName> {
        text.parse()
    }
}

impl From<OperatorName> for String {
    fn from(name: OperatorName) -> Self {
        name.0.into()
    }
}

impl fmt::Display for OperatorName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.pad(&self.0)
    }
}

/// An operator as the store keeps it. An operator without a usable credential has no access.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorRecord {
    /// The name, unique in the mesh.
    pub name: OperatorName,
    /// The role, which all credentials have.
    pub role: OperatorRole,
    /// The credentials, the oldest first.
    pub credentials: Vec<OperatorCredential>,
    /// The fields of newer versions.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl OperatorRecord {
    /// The most credentials of one operator.
    pub const MAX_CREDENTIALS: usize = 100;

    /// Whether the operator has access at `now`.
    pub fn is_active(&self, now: Timestamp) -> bool {
        self.credentials.iter().any(|credential| credential.state(now) == CredentialState::Valid)
    }

    /// The credential with this id.
    pub fn credential(&self, id: &str) -> Option<&OperatorCredential> {
        self.credentials.iter().find(|credential| credential.id == id)
    }
}

/// A credential of an operator.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct OperatorCredential {
    /// Its id: the serial number of a certificate, or the public part of a token.
    pub id: String,
    /// The SHA-256 of the secret of a token, in hexadecimal; none for a certificate, whose key only the operator has.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub secret_hash: Option<String>,
    /// When it was issued.
    pub issued_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// Who issued it.
    pub issued_by: String,
    /// Its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
    /// The fields of newer versions.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

impl OperatorCredential {
    /// What it is, as in JSON: `certificate` or `token`.
    pub const fn kind(&self) -> &'static str {
        if self.secret_hash.is_some() { "token" } else { "certificate" }
    }

    /// Its state at `now`.
    pub fn state(&self, now: Timestamp) -> CredentialState {
        if self.revoked.is_some() {
            CredentialState::Revoked
        } else if now >= self.expires_at {
            CredentialState::Expired
        } else {
            CredentialState::Valid
        }
    }
}

/// Whether a credential can be used.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CredentialState {
    /// It can.
    Valid,
    /// Its time is over.
    Expired,
    /// An operator revoked it.
    Revoked,
}

impl CredentialState {
    /// The word for it, as in JSON.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Valid => "valid",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn roles_are_ordered_and_have_the_same_word_in_text_and_json() {
        for role in OperatorRole::ALL {
            assert_eq!(serde_json::to_string(&role).unwrap(), format!("\"{role}\""));
            assert_eq!(role.word().parse(), Ok(role));
        }
        assert!(
            OperatorRole::Viewer < OperatorRole::Operator
                && OperatorRole::Operator < OperatorRole::Admin
        );
        assert_eq!(
            "root".parse::<OperatorRole>(),
            Err("expected one of: viewer, operator, admin".into())
        );
    }

    #[test]
    fn operator_names_are_short_hostnames() {
        for good in ["ann", "ann.b-c_2", "7", &"a".repeat(63)] {
            assert_eq!(good.parse::<OperatorName>().unwrap().as_str(), good);
        }
        for bad in ["", "Ann", "ann@example.com", "-ann", "ann.", "a b", "a/b", &"a".repeat(64)] {
            assert!(bad.parse::<OperatorName>().is_err(), "{bad}");
        }
    }
}
