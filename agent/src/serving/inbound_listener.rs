//! The inbound listener of Envoy, by its admin interface.
//!
//! Its *content* is read: `version_info` is stale after an update of filter chains in place (tried on Envoy 1.40).

use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};

use ironmesh_agent_envoy::local_http::LocalAddress;
use ironmesh_catalog::ServiceSecret;
use serde::Deserialize;

use crate::status::{LocalRequestError, get};

const PATH: &str = "/config_dump?resource=dynamic_listeners&name_regex=^inbound$";

/// The active inbound listener.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct InboundListener {
    /// Where it listens; none if there is none.
    pub(super) address: Option<SocketAddr>,
    /// The chains whose certificates come from the agent.
    pub(super) agent_fed_chains: Vec<Chain>,
    /// Whether a newer version waits for something.
    pub(super) is_warming: bool,
}

/// A filter chain.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Chain {
    /// The server name by which callers select it.
    pub(super) server_name: String,
    /// The secret with its certificate.
    pub(super) secret: ServiceSecret,
}

impl InboundListener {
    /// Its name in Envoy.
    pub(super) const NAME: &str = "inbound";

    pub(super) async fn read(admin: &LocalAddress) -> Result<Self, LocalRequestError> {
        let dump = get(admin, PATH).await?;
        Self::parse(dump.as_ref()).map_err(|error| LocalRequestError::invalid(admin, &error))
    }

    fn parse(dump: &[u8]) -> Result<Self, serde_json::Error> {
        let dump: Dump = serde_json::from_slice(dump)?;
        let Some(listener) = dump.configs.into_iter().next() else { return Ok(Self::default()) };
        let is_warming = listener.warming_state.is_some();
        let Some(active) = listener.active_state.map(|state| state.listener) else {
            return Ok(Self { is_warming, ..Self::default() });
        };
        let agent_fed_chains = active.filter_chains.into_iter().filter_map(chain).collect();
        let address = active.address.socket_address.as_ref().and_then(reachable);
        Ok(Self { address, agent_fed_chains, is_warming })
    }
}

/// The address at which this machine reaches a port.
fn reachable(address: &SocketAddressJson) -> Option<SocketAddr> {
    let ip = match address.address.parse().ok()? {
        IpAddr::V4(ip) if ip.is_unspecified() => Ipv4Addr::LOCALHOST.into(),
        IpAddr::V6(ip) if ip.is_unspecified() => Ipv6Addr::LOCALHOST.into(),
        ip => ip,
    };
    Some((ip, address.port_value).into())
}

fn chain(chain: ChainJson) -> Option<Chain> {
    let server_name = chain.filter_chain_match.server_names.into_iter().next()?;
    let tls = chain.transport_socket.typed_config.common_tls_context;
    let secret = tls.tls_certificate_sds_secret_configs.into_iter().next()?;
    // One that comes by ADS has another source.
    secret.sds_config.api_config_source.as_ref()?;
    Some(Chain { server_name, secret: secret.name.parse().ok()? })
}

#[derive(Debug, Deserialize)]
struct Dump {
    #[serde(default)]
    configs: Vec<ListenerJson>,
}

#[derive(Debug, Deserialize)]
struct ListenerJson {
    active_state: Option<StateJson>,
    warming_state: Option<serde::de::IgnoredAny>,
}

#[derive(Debug, Deserialize)]
struct StateJson {
    listener: ActiveJson,
}

#[derive(Debug, Deserialize)]
struct ActiveJson {
    #[serde(default)]
    address: AddressJson,
    #[serde(default)]
    filter_chains: Vec<ChainJson>,
}

#[derive(Debug, Default, Deserialize)]
struct AddressJson {
    socket_address: Option<SocketAddressJson>,
}

#[derive(Debug, Deserialize)]
struct SocketAddressJson {
    address: String,
    port_value: u16,
}

#[derive(Debug, Deserialize)]
struct ChainJson {
    #[serde(default)]
    filter_chain_match: MatchJson,
    #[serde(default)]
    transport_socket: SocketJson,
}

#[derive(Debug, Default, Deserialize)]
struct MatchJson {
    #[serde(default)]
    server_names: Vec<String>,
}

#[derive(Debug, Default, Deserialize)]
struct SocketJson {
    #[serde(default)]
    typed_config: TlsJson,
}

#[derive(Debug, Default, Deserialize)]
struct TlsJson {
    #[serde(default)]
    common_tls_context: ContextJson,
}

#[derive(Debug, Default, Deserialize)]
struct ContextJson {
    #[serde(default)]
    tls_certificate_sds_secret_configs: Vec<SecretJson>,
}

#[derive(Debug, Deserialize)]
struct SecretJson {
    #[serde(default)]
    name: String,
    #[serde(default)]
    sds_config: SourceJson,
}

#[derive(Debug, Default, Deserialize)]
struct SourceJson {
    api_config_source: Option<serde::de::IgnoredAny>,
}
