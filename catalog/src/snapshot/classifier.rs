//! The endpoint classifier: the one place that decides the status of each endpoint of a service.
//!
//! Callers, findings and lists all follow from it, so that reports and traffic cannot differ. It never resolves
//! policy or health.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use jiff::Timestamp;

use super::LeavingProxies;
use super::applications::ApplicationsOfService;
use super::endpoint_status::{EndpointState, EndpointStatus, ExclusionReason};
use crate::endpoint::{Endpoint, Health, Provider, ProviderKind};
use crate::name::ServiceName;
use crate::proxy::{CertificateSource, Cordon, JoinRecord, ProxyId};
use crate::proxy_index::ProxyIndex;
use crate::service::{Port, Service};

/// The inputs that decide the statuses of the endpoints of one service.
#[derive(Debug)]
pub(super) struct EndpointClassifier<'a> {
    pub(super) service: &'a Service,
    /// Whether operators drain the service.
    pub(super) is_drained: bool,
    /// Whether callers dial endpoints that are not participants in plaintext.
    pub(super) takes_plaintext: bool,
    /// The external providers that policy queries for its endpoints.
    pub(super) providers: Vec<Provider>,
    /// The proxies enrolled for the service; empty for an external service.
    pub(super) proxies: ProxyIndex,
    /// Its revoked proxies.
    pub(super) revoked: ProxyIndex,
    /// The proxies of the mesh that leave it, or that operators have cordoned.
    pub(super) leaving: LeavingProxies,
    /// The health of its applications, as their probes report it.
    pub(super) health: ApplicationsOfService,
}

/// The proxy to which an endpoint belongs.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProxyMatch<'a> {
    /// One proxy. Several records are enrolled anew for one machine, with the same mesh address.
    Proxy(&'a [Arc<JoinRecord>]),
    /// The same, but every record is unreachable.
    Unreachable(&'a [Arc<JoinRecord>]),
    /// Proxies with different mesh addresses: which one the endpoint belongs to is unknown.
    Several(&'a [Arc<JoinRecord>]),
    /// A revoked proxy, with no proxy enrolled there since.
    Revoked(&'a JoinRecord),
    /// No proxy.
    None,
}

impl<'a> ProxyMatch<'a> {
    /// The records of the proxy of the endpoint.
    pub(super) fn proxies(self) -> &'a [Arc<JoinRecord>] {
        match self {
            Self::Proxy(records) | Self::Unreachable(records) => records,
            Self::Several(_) | Self::Revoked(_) | Self::None => &[],
        }
    }
}

impl EndpointClassifier<'_> {
    fn served_as(&self) -> &ServiceName {
        self.service.served_as()
    }

    pub(super) fn proxy_match(&self, endpoint: &Endpoint) -> ProxyMatch<'_> {
        let candidates = self.proxies.candidates(endpoint);
        let addresses: BTreeSet<_> = candidates.iter().map(|one| one.mesh_address).collect();
        if candidates.is_empty() {
            let revoked = self.revoked.candidates(endpoint).first();
            revoked.map_or(ProxyMatch::None, |record| ProxyMatch::Revoked(record))
        } else if candidates.iter().all(|record| is_withdrawn(endpoint, record)) {
            ProxyMatch::Unreachable(candidates)
        } else if addresses.len() > 1 {
            ProxyMatch::Several(candidates)
        } else {
            ProxyMatch::Proxy(candidates)
        }
    }

    /// Whether an endpoint is a participant through this proxy, on this port of the service.
    pub(super) fn participates(&self, endpoint: &Endpoint, record: &JoinRecord, port: u16) -> bool {
        let has_acked = record.participation.0.contains(&(self.served_as().clone(), port));
        has_acked && !is_withdrawn(endpoint, record)
    }

    /// Since when the proxy with these records, which have the same mesh address, leaves the mesh; none if it does not.
    /// If a machine was enrolled again, the newest record that has connected is decisive.
    pub(super) fn leaving_since(&self, records: &[Arc<JoinRecord>]) -> Option<Timestamp> {
        self.leaving.get(&newest_claimed(records)?.id).copied()
    }

    /// The records among these, with the same mesh address, through which callers use an endpoint on this port:
    /// participants that are configured with its target port.
    pub(super) fn participants<'r>(
        &self,
        endpoint: &Endpoint,
        records: &'r [Arc<JoinRecord>],
        port: &Port,
    ) -> impl Iterator<Item = &'r JoinRecord> {
        let is_configured = self.is_configured(endpoint, records, port);
        let participants = records.iter().map(|record| &**record);
        participants
            .filter(move |record| is_configured && self.participates(endpoint, record, port.number))
    }

    /// Whether the proxy of an endpoint forwards to its target port. A port without backend forwards to policy's
    /// target port. (If a machine was enrolled again, the newest record is decisive, because that proxy listens.)
    fn is_configured(&self, endpoint: &Endpoint, records: &[Arc<JoinRecord>], port: &Port) -> bool {
        let key = (self.served_as().clone(), port.number);
        let participants =
            records.iter().filter(|one| self.participates(endpoint, one, port.number));
        let newest = participants.max_by_key(|record| record.enrolled_at);
        self.target(endpoint, port) == port.target
            || newest.is_some_and(|record| !record.ports_without_backend.0.contains(&key))
    }

    /// The port at which the application of an endpoint listens.
    pub(super) fn target(&self, endpoint: &Endpoint, port: &Port) -> u16 {
        // A provider reports one port per instance, without the service port to which it belongs.
        let is_only = self.service.ports.len() == 1;
        endpoint.port.filter(|_| is_only).unwrap_or(port.target)
    }

    /// Whether callers dial an endpoint in plaintext where it is not a participant.
    pub(super) fn is_called_in_plaintext(
        &self,
        endpoint: &Endpoint,
        proxy_match: ProxyMatch<'_>,
    ) -> bool {
        self.takes_plaintext
            && self.is_queried(endpoint.provider)
            && !matches!(proxy_match, ProxyMatch::Unreachable(_) | ProxyMatch::Revoked(_))
    }

    /// Whether policy itself queries a provider for the service's endpoints. Anyone with write access to Consul may
    /// tag an instance as belonging to a service, so a tag never allows plaintext.
    pub(super) fn is_queried(&self, provider: Provider) -> bool {
        match provider.kind() {
            ProviderKind::Policy => true,
            // The application of a registered endpoint may be reachable by its proxy alone.
            ProviderKind::JoinRecords => false,
            ProviderKind::External => self.providers.contains(&provider),
        }
    }

    /// The status of an endpoint on all ports of the service. `past` are proxies that are not in use any more.
    pub(super) fn status(&self, endpoint: &Endpoint, past: &ProxyIndex) -> EndpointStatus {
        let proxy_match = self.proxy_match(endpoint);
        let proxy = match proxy_match {
            ProxyMatch::Proxy(records) | ProxyMatch::Unreachable(records) => {
                self.most_advanced(endpoint, records)
            }
            ProxyMatch::Revoked(record) => Some(record),
            ProxyMatch::Several(_) => None,
            ProxyMatch::None => past.candidates(endpoint).first().map(|record| &**record),
        };
        let state = match self.exclusion_reason(endpoint, proxy_match, proxy) {
            _ if self.is_drained => EndpointState::Excluded(ExclusionReason::Drained),
            Some(why @ ExclusionReason::Excluded { .. }) => EndpointState::Excluded(why),
            None => EndpointState::Participant,
            Some(_) if self.service.external.is_some() => EndpointState::External,
            // It is a participant, so callers never dial it in plaintext.
            Some(why @ ExclusionReason::NotConfigured { .. }) => EndpointState::Excluded(why),
            Some(why) if self.is_called_in_plaintext(endpoint, proxy_match) => {
                EndpointState::Plaintext(why)
            }
            Some(why) => EndpointState::Excluded(why),
        };
        // The provider's locality has precedence over that of the proxy.
        let mut endpoint = endpoint.clone();
        if let Some(record) = proxy.filter(|_| endpoint.locality.is_empty()) {
            endpoint.locality = record.locality.clone();
        }
        let leaving_since = self.leaving_since(proxy_match.proxies());
        if leaving_since.is_some() {
            endpoint.health = endpoint.health.max(Health::Draining);
        }
        let application = self.application(&endpoint, proxy_match.proxies());
        EndpointStatus {
            application,
            endpoint: Some(endpoint),
            proxy: proxy.map(|record| record.id),
            proxy_name: proxy.map(JoinRecord::display_name),
            mesh_address: proxy.map(|record| record.mesh_address),
            leaving_since,
            cordon: newest_claimed(proxy_match.proxies())
                .and_then(|record| record.cordon.as_ref().map(Cordon::mode)),
            state,
        }
    }

    /// The proxies without an endpoint.
    pub(super) fn proxies_without_endpoint(&self, endpoints: &[Endpoint]) -> Vec<&JoinRecord> {
        let mut left: BTreeMap<ProxyId, &JoinRecord> =
            self.proxies.all().map(|record| (record.id, &**record)).collect();
        for record in endpoints.iter().flat_map(|one| self.proxies.candidates(one)) {
            left.remove(&record.id);
        }
        left.into_values().collect()
    }

    /// Why an endpoint is not a participant; none if it is.
    fn exclusion_reason(
        &self,
        endpoint: &Endpoint,
        proxy_match: ProxyMatch<'_>,
        proxy: Option<&JoinRecord>,
    ) -> Option<ExclusionReason> {
        if let Some(why) = endpoint.exclusion {
            return Some(ExclusionReason::Excluded { why });
        }
        let why = match proxy_match {
            ProxyMatch::Proxy(records) => {
                let is_missing =
                    |port: &&Port| self.participants(endpoint, records, port).next().is_none();
                let missing: Vec<_> = self.service.ports.iter().filter(is_missing).collect();
                let ports: Vec<_> = missing.iter().map(|port| port.number).collect();
                let is_acked = |port: &&Port| {
                    records.iter().any(|record| self.participates(endpoint, record, port.number))
                };
                let is_claimed = |record: &Arc<JoinRecord>| record.claimed_at.is_some();
                let has_agent = |record: &Arc<JoinRecord>| {
                    is_claimed(record) && record.certificates == CertificateSource::Agent
                };
                match ports.as_slice() {
                    [] => return None,
                    _ if missing.iter().all(is_acked) => ExclusionReason::NotConfigured { ports },
                    _ if records.iter().any(has_agent) => ExclusionReason::NotReported { ports },
                    _ if records.iter().any(is_claimed) => ExclusionReason::NotAcked { ports },
                    _ => ExclusionReason::Unclaimed,
                }
            }
            ProxyMatch::Unreachable(records) => {
                let since = records.iter().filter_map(|record| record.unreachable_since).max();
                ExclusionReason::Unreachable { since: since.unwrap_or_default() }
            }
            ProxyMatch::Several(records) => ExclusionReason::SeveralProxies {
                proxies: records.iter().map(|one| one.id).collect(),
            },
            ProxyMatch::Revoked(_) => ExclusionReason::Revoked,
            ProxyMatch::None if proxy.is_some() => ExclusionReason::Expired,
            ProxyMatch::None => ExclusionReason::NoProxy,
        };
        Some(why)
    }

    /// The record with the most ACKed ports among the records of one proxy.
    fn most_advanced<'a>(
        &self,
        endpoint: &Endpoint,
        records: &'a [Arc<JoinRecord>],
    ) -> Option<&'a JoinRecord> {
        let ports = |record: &JoinRecord| {
            let ports = self.service.ports.iter();
            ports.filter(|port| self.participates(endpoint, record, port.number)).count()
        };
        let most_advanced = records.iter().max_by_key(|record| (ports(record), record.enrolled_at));
        most_advanced.map(|record| &**record)
    }
}

/// The newest of the records of one machine that has connected.
fn newest_claimed(records: &[Arc<JoinRecord>]) -> Option<&JoinRecord> {
    let claimed = records.iter().filter(|record| record.claimed_at.is_some());
    claimed.max_by_key(|record| record.enrolled_at).map(|record| &**record)
}

/// Whether callers stop using an endpoint because its proxy is unreachable. The endpoints of external providers
/// follow their provider instead.
fn is_withdrawn(endpoint: &Endpoint, record: &JoinRecord) -> bool {
    !endpoint.provider.is_external() && record.unreachable_since.is_some()
}
