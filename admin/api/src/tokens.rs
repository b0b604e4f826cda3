//! The JSON types of tokens, by which machines enroll, and of changed services.

use std::net::{IpAddr, SocketAddr};

use ironmesh_catalog::network_address;
use ironmesh_catalog::{
    DriverName, IpRange, Labels, Locality, ProxyId, ProxyName, Secret, ServiceName, TokenId,
};
use jiff::Timestamp;
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use uuid::Uuid;

use crate::join_record::RevocationView;

/// The most tokens that one request may create.
pub const MAX_TOKENS: usize = 1_000;

/// The longest lifetime of an unused token, in seconds: a week.
pub const MAX_TOKEN_TTL: u64 = 7 * 86_400;

/// The request to create tokens: all of them, or none.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenRequest {
    /// The services that the proxy serves, at least one.
    pub services: Vec<ServiceName>,
    /// The labels of the proxy.
    #[serde(default, skip_serializing_if = "Labels::is_empty")]
    pub labels: Labels,
    /// The locality of the proxy.
    #[serde(default, skip_serializing_if = "Locality::is_empty")]
    pub locality: Locality,
    /// Further addresses by which providers know the machine; none for several tokens.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<network_address::IpAddress>)]
    pub known_as: Vec<IpAddr>,
    /// The key by which providers know the machine; none for several tokens.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub machine: Option<Uuid>,
    /// The addresses of which the proxy may have one; any without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<IpRange>,
    /// The sidecar driver of the proxy; without it, that of the control plane's settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub driver: Option<DriverName>,
    /// Whether the authority is known to be new. Otherwise no token is created while all clients reject it.
    #[serde(default)]
    pub new_authority: bool,
    /// How long the tokens can be used, in seconds: at most [`MAX_TOKEN_TTL`].
    #[schema(minimum = 1, maximum = 604_800)]
    pub ttl: u64,
    /// How many tokens to create: 1 to [`MAX_TOKENS`].
    #[schema(minimum = 1, maximum = 1000)]
    pub count: usize,
}

/// Newly created tokens, and what a machine needs besides one.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedTokens {
    /// The tokens.
    pub tokens: Vec<CreatedToken>,
    /// When they expire.
    pub expires_at: Timestamp,
    /// The hash of each CA of the mesh, by which the machine recognizes the control plane.
    pub ca_hashes: Vec<String>,
    /// Where machines enroll, as host and port.
    pub enrollment: Vec<(String, u16)>,
}

/// A newly created token.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct CreatedToken {
    /// Its public name.
    pub id: TokenId,
    /// The token. It is shown only now.
    pub token: Secret,
}

/// The stored tokens, the newest first.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenList {
    /// The tokens.
    pub tokens: Vec<TokenView>,
}

/// A stored token, without its secret.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenView {
    /// Its public name.
    pub id: TokenId,
    /// Its state: `unused`, `used`, `expired` or `revoked`.
    pub state: String,
    /// The services of the proxy.
    pub services: Vec<ServiceName>,
    /// The addresses of which the proxy may have one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub addresses: Option<IpRange>,
    /// When it was created.
    pub created_at: Timestamp,
    /// When it expires.
    pub expires_at: Timestamp,
    /// The proxy that it enrolled.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub used: Option<TokenUseView>,
    /// The first attempt to use it again, with another key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub misused: Option<TokenMisuseView>,
    /// Its revocation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub revoked: Option<RevocationView>,
}

/// The use of a token.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenUseView {
    /// When.
    pub at: Timestamp,
    /// From where.
    #[schema(value_type = network_address::SocketAddress)]
    pub from: SocketAddr,
    /// The proxy.
    pub proxy: ProxyId,
    /// The name of the proxy, while it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<ProxyName>,
}

/// An attempt to use a used token.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct TokenMisuseView {
    /// When.
    pub at: Timestamp,
    /// From where.
    #[schema(value_type = network_address::SocketAddress)]
    pub from: SocketAddr,
}

/// The request to revoke a token.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct RevokeTokenRequest {
    /// The reason, one line.
    pub reason: Option<String>,
}

/// The request to give a proxy other services.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ServicesRequest {
    /// All services that it shall serve, at least one.
    pub services: Vec<ServiceName>,
}

/// A proxy with its services after a change.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ChangedServices {
    /// The proxy.
    pub id: ProxyId,
    /// Its name.
    pub name: ProxyName,
    /// Its services before.
    pub before: Vec<ServiceName>,
    /// Its services now.
    pub services: Vec<ServiceName>,
}
