//! How endpoints stand: who takes part, who is called in plaintext, who is not called, and why not.

use std::fmt;
use std::net::SocketAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Records, Snapshot};
use crate::endpoint::Endpoint;
use crate::endpoint::Exclusion;
use crate::name::ServiceName;
use crate::proxy::{JoinRecord, ProxyId};
use crate::proxy_index::ProxyIndex;

/// How an endpoint of a service stands; or a proxy that joined as it, in front of no endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointStatus {
    /// The endpoint; none of a proxy without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// The proxy in front of it, if it is known which one that is, or was.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyId>,
    /// Where that proxy is dialled, when it is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_address: Option<SocketAddr>,
    /// How it stands.
    pub state: State,
}

/// Whether and how an endpoint is called. (What its provider says of its health is another question.)
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "because")]
pub enum State {
    /// Through its proxy, on all ports of the service.
    Participant,
    /// In plaintext, as its service is permissive and it takes no part, or not on all ports.
    Plaintext(ExclusionReason),
    /// As it is: its service is outside of the mesh.
    Outside,
    /// It is not called, or not on all ports.
    Out(ExclusionReason),
}

/// Why an endpoint is no participant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum ExclusionReason {
    /// Policy has taken its service out of service.
    Drained,
    /// Its service does not use it, whatever its provider says.
    Excluded {
        /// Why.
        why: Exclusion,
    },
    /// No proxy joined as its service where it is.
    NoProxy,
    /// Several did, and nothing says which of them is in front of it.
    SeveralProxies {
        /// Those proxies.
        proxies: Vec<ProxyId>,
    },
    /// Its proxy has never connected.
    Unclaimed,
    /// Its proxy does not have all of the service's ports in force.
    NotTaken {
        /// Those that it does not have.
        ports: Vec<u16>,
    },
    /// Its proxy has these ports in force, and has not heard yet at which port it listens itself.
    Unheard {
        /// The ports of the service.
        ports: Vec<u16>,
    },
    /// Its proxy may be dead, and no provider says that the endpoint lives.
    Suspect {
        /// Since when.
        since: Timestamp,
    },
    /// Its proxy was shut out.
    Revoked,
    /// Its proxy's certificate has ended, or was never used in time.
    Expired,
    /// The proxy has joined, and no provider knows an endpoint where it is.
    NoEndpoint,
}

impl fmt::Display for ExclusionReason {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Drained => f.write_str("its service is drained"),
            Self::Excluded { why } => why.fmt(f),
            Self::NoProxy => f.write_str("no proxy is enrolled for this service at its address"),
            Self::SeveralProxies { proxies } => {
                let ids: Vec<_> = proxies.iter().map(ToString::to_string).collect();
                let ids = ids.join(", ");
                write!(f, "several proxies are enrolled for this service at its address: {ids}")
            }
            Self::Unclaimed => f.write_str("its proxy has never connected"),
            Self::NotTaken { ports } => {
                let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                write!(f, "its proxy has not ACKed port {} yet", ports.join(", "))
            }
            Self::Unheard { ports } => {
                let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "its proxy is not yet configured for this endpoint on port {}",
                    ports.join(", ")
                )
            }
            Self::Suspect { since } => {
                write!(f, "its proxy is unreachable since {since:.0}")
            }
            Self::Revoked => f.write_str("its proxy was revoked"),
            Self::Expired => f.write_str("the certificate of its proxy has expired"),
            Self::NoEndpoint => f.write_str("no provider reports an endpoint at its address"),
        }
    }
}

impl Snapshot {
    /// How each endpoint of a service stands, in the order of the providers, and each proxy that joined as
    /// it without an endpoint. None of a service that policy does not define.
    ///
    /// `past` are the records of proxies that are no more in use: it tells an endpoint whose proxy's
    /// certificate has ended from one that never had a proxy. It costs as much as this service has endpoints,
    /// and a look at each of these records.
    pub fn endpoint_statuses(&self, name: &ServiceName, past: &Records) -> Vec<EndpointStatus> {
        let Some(service) = self.service(name) else { return Vec::new() };
        let judge = self.judge(service);
        let has_stood = |record: &JoinRecord| {
            record.services.contains(service.served_as())
                && record.revoked.is_none()
                && !self.records.contains_key(&record.id)
        };
        let past = ProxyIndex::of(past.values().filter(|record| has_stood(record)).cloned());
        let endpoints = self.discovered.0.get(name).map_or(&[][..], |known| known.as_slice());
        let stand = endpoints.iter().map(|endpoint| judge.stand(endpoint, &past));
        // A part has no proxies of its own.
        let without = if service.is_subset() { Vec::new() } else { judge.without(endpoints) };
        let alone = without.into_iter().map(|record| EndpointStatus {
            endpoint: None,
            proxy: Some(record.id),
            mesh_address: Some(record.mesh_address),
            state: State::Out(ExclusionReason::NoEndpoint),
        });
        stand.chain(alone).collect()
    }
}
