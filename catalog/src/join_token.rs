//! Join tokens: what a one-time token allows the machine that presents it, and what became of it.
//!
//! This module owns the record and the state of a token. It never sees a secret: that is the enrollment crate's.

use std::net::{IpAddr, SocketAddr};
use std::str::FromStr;

use jiff::{SignedDuration, Timestamp};
use serde::{Deserialize, Serialize};
use uuid::Uuid;

use crate::driver_name::DriverName;
use crate::ip_range::IpRange;
use crate::labels::Labels;
use crate::locality::Locality;
use crate::name::ServiceName;
use crate::proxy::credentials::KeyHash;
use crate::proxy::{ProxyId, Revocation};
use crate::token_id::TokenId;
use crate::unknown_fields::UnknownFields;

/// The stored facts of a token. They decide what the machine becomes; the machine's request does not.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct JoinToken {
    /// Its public name.
    pub id: TokenId,
    /// The hash of its secret.
    pub secret_hash: String,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The services that the proxy may serve, at least one.
    pub services: Vec<ServiceName>,
    /// The addresses of which the proxy may have one. Any, without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<IpRange>,
    /// The labels of the proxy.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The locality of the proxy.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
    /// Further addresses at which providers report the machine.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub known_as: Vec<IpAddr>,
    /// The provider's key of the machine.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// The sidecar driver of the proxy.
    #[serde(default)]
    pub driver: DriverName,
    /// Its use, once a machine has presented it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<TokenUse>,
    /// The first attempt to use it again, with another key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misused: Option<TokenMisuse>,
    /// Its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<Revocation>,
    /// The fields of a newer version, which are stored again with the record.
    #[serde(flatten)]
    pub unknown: UnknownFields,
}

/// The use of a token by a machine.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenUse {
    /// When.
    pub at: Timestamp,
    /// From where.
    pub from: SocketAddr,
    /// The key of the machine.
    pub key: KeyHash,
    /// The proxy that the machine became.
    pub proxy: ProxyId,
}

/// An attempt to use a used token again: someone may have copied it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct TokenMisuse {
    /// When.
    pub at: Timestamp,
    /// From where.
    pub from: SocketAddr,
}

/// The state of a token.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TokenState {
    /// A machine can use it.
    Unused,
    /// A machine has used it.
    Used,
    /// Its time was over before a machine used it.
    Expired,
    /// An operator revoked it.
    Revoked,
}

impl TokenState {
    /// All states.
    pub const ALL: [Self; 4] = [Self::Unused, Self::Used, Self::Expired, Self::Revoked];

    /// The word for it.
    pub const fn word(self) -> &'static str {
        match self {
            Self::Unused => "unused",
            Self::Used => "used",
            Self::Expired => "expired",
            Self::Revoked => "revoked",
        }
    }
}

impl FromStr for TokenState {
    type Err = &'static str;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL.into_iter().find(|state| state.word() == text).ok_or("an unknown state")
    }
}

impl JoinToken {
    /// How long the machine that used it may repeat its request, with the same key.
    pub const REPEAT: SignedDuration = SignedDuration::from_mins(5);

    /// Its state at `now`.
    pub fn state(&self, now: Timestamp) -> TokenState {
        match (&self.revoked, &self.used) {
            (Some(_), _) => TokenState::Revoked,
            (None, Some(_)) => TokenState::Used,
            (None, None) if self.expires_at <= now => TokenState::Expired,
            (None, None) => TokenState::Unused,
        }
    }

    /// Whether the token allows a proxy at this address.
    pub fn allows(&self, address: IpAddr) -> bool {
        self.addresses.is_none_or(|range| range.includes(IpRange::of(address)))
    }

    /// Its use, if a machine with this key may repeat its request.
    pub fn repeatable(&self, key: &KeyHash, now: Timestamp) -> Option<&TokenUse> {
        let is_recent = |used: &&TokenUse| {
            let age = now.duration_since(used.at);
            // A clock that goes back must not extend it.
            age.abs() <= Self::REPEAT
        };
        self.used.as_ref().filter(|used| used.key == *key).filter(is_recent)
    }
}
