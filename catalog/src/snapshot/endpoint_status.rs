//! Endpoint statuses: whether callers use an endpoint, how, and if not, why.
//!
//! This module owns the statuses as data and their texts. The endpoint classifier decides them.

use std::fmt;
use std::net::SocketAddr;

use jiff::Timestamp;
use serde::{Deserialize, Serialize};

use super::{Records, Snapshot};
use crate::application_health::ApplicationHealth;
use crate::endpoint::Endpoint;
use crate::endpoint::Exclusion;
use crate::name::ServiceName;
use crate::proxy::{Cordon, CordonMode, JoinRecord, ProxyId};
use crate::proxy_index::ProxyIndex;
use crate::proxy_name::ProxyName;

/// The status of an endpoint of a service, or of an enrolled proxy without an endpoint.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndpointStatus {
    /// The endpoint; none for a proxy without one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<Endpoint>,
    /// The proxy of the endpoint, now or before, if it is known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy: Option<ProxyId>,
    /// The name of that proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub proxy_name: Option<ProxyName>,
    /// The address at which callers dial that proxy.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub mesh_address: Option<SocketAddr>,
    /// Since when that proxy leaves the mesh, so that the endpoint drains.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leaving_since: Option<Timestamp>,
    /// How far an operator has taken that proxy out of service; none if it is in service.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cordon: Option<CordonMode>,
    /// The health of its application by the health check of its service; none if no probe reports it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub application: Option<ApplicationHealth>,
    /// Whether and how callers use it.
    pub state: EndpointState,
}

/// Whether and how callers use an endpoint. The health that its provider reports is independent of this.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "is", content = "because")]
pub enum EndpointState {
    /// Callers dial its proxy, on all ports of the service.
    Participant,
    /// Callers dial it in plaintext: its service is permissive, and it is not a participant on all ports.
    Plaintext(ExclusionReason),
    /// Callers dial it directly: its service is external.
    External,
    /// Callers do not use it, or not on all ports.
    Excluded(ExclusionReason),
}

/// The reason why an endpoint is not a participant.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case", tag = "reason")]
pub enum ExclusionReason {
    /// Policy drains its service.
    Drained,
    /// Its service excludes it, whatever its provider reports.
    Excluded {
        /// The reason.
        why: Exclusion,
    },
    /// No proxy is enrolled for its service at its address.
    NoProxy,
    /// Several proxies are enrolled for its service at its address, and nothing identifies its own.
    SeveralProxies {
        /// These proxies.
        proxies: Vec<ProxyId>,
    },
    /// Its proxy has never connected.
    Unclaimed,
    /// Its proxy has not ACKed all ports of the service.
    NotAcked {
        /// The ports without an ACK.
        ports: Vec<u16>,
    },
    /// The agent of its machine has not reported that all ports of the service accept callers, or its proxy has not ACKed
    /// them.
    NotReported {
        /// The ports without a report.
        ports: Vec<u16>,
    },
    /// Its proxy has ACKed the ports, but is not yet configured with the target port of this endpoint.
    NotConfigured {
        /// The ports of the service.
        ports: Vec<u16>,
    },
    /// Its proxy is unreachable, and no external provider reports the endpoint.
    Unreachable {
        /// When the proxy became unreachable.
        since: Timestamp,
    },
    /// Its proxy is revoked.
    Revoked,
    /// The certificate of its proxy has expired, or the enrollment has.
    Expired,
    /// The proxy is enrolled, but no provider reports an endpoint at its address.
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
            Self::NotAcked { ports } => {
                let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                write!(f, "its proxy has not ACKed port {} yet", ports.join(", "))
            }
            Self::NotReported { ports } => {
                let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                let ports = ports.join(", ");
                write!(
                    f,
                    "the agent of its machine has not reported yet that port {ports} accepts callers"
                )
            }
            Self::NotConfigured { ports } => {
                let ports: Vec<_> = ports.iter().map(ToString::to_string).collect();
                write!(
                    f,
                    "its proxy is not yet configured for this endpoint on port {}",
                    ports.join(", ")
                )
            }
            Self::Unreachable { since } => {
                write!(f, "its proxy is unreachable since {since:.0}")
            }
            Self::Revoked => f.write_str("its proxy was revoked"),
            Self::Expired => f.write_str("the certificate of its proxy has expired"),
            Self::NoEndpoint => f.write_str("no provider reports an endpoint at its address"),
        }
    }
}

impl Snapshot {
    /// The statuses of the endpoints of a service, in the order of the providers, then of its proxies without an
    /// endpoint. Empty for a service that policy does not define.
    ///
    /// `past` are the records of proxies that are not in use any more. They distinguish an endpoint whose proxy's
    /// certificate has expired from one without any proxy. The cost is linear in the endpoints and in `past`.
    pub fn endpoint_statuses(&self, name: &ServiceName, past: &Records) -> Vec<EndpointStatus> {
        let Some(service) = self.service(name) else { return Vec::new() };
        let classifier = self.classifier(service);
        let was_of_service = |record: &JoinRecord| {
            record.services.contains(service.served_as())
                && record.revoked.is_none()
                && !self.records.contains_key(&record.id)
        };
        let past = ProxyIndex::of(past.values().filter(|record| was_of_service(record)).cloned());
        let endpoints = self.discovered.0.get(name).map_or(&[][..], |known| known.as_slice());
        let statuses = endpoints.iter().map(|endpoint| classifier.status(endpoint, &past));
        // A subset has no proxies of its own.
        let proxies = if service.is_subset() {
            Vec::new()
        } else {
            classifier.proxies_without_endpoint(endpoints)
        };
        let without_endpoint = proxies.into_iter().map(|record| EndpointStatus {
            endpoint: None,
            application: None,
            proxy: Some(record.id),
            proxy_name: Some(record.display_name()),
            mesh_address: Some(record.mesh_address),
            leaving_since: classifier.leaving.get(&record.id).copied(),
            cordon: record.cordon.as_ref().map(Cordon::mode),
            state: EndpointState::Excluded(ExclusionReason::NoEndpoint),
        });
        statuses.chain(without_endpoint).collect()
    }
}
