//! The one place that decides how the endpoints of a service stand. Where callers go, what findings tell
//! and what is listed all follow from it, so that what is told and what is done cannot differ.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use super::endpoint_status::{EndpointStatus, ExclusionReason, State};
use crate::endpoint::{Endpoint, Provider};
use crate::name::ServiceName;
use crate::proxy::{JoinRecord, ProxyId};
use crate::proxy_index::ProxyIndex;
use crate::service::{Port, Service};

/// What the endpoints of one service are judged by.
#[derive(Debug)]
pub(super) struct EndpointClassifier<'a> {
    pub(super) service: &'a Service,
    /// Whether nobody is called, as operators wish.
    pub(super) is_drained: bool,
    /// Whether endpoints that take no part are called in plaintext.
    pub(super) takes_plaintext: bool,
    /// Those of Consul and Azure whom policy asks for its endpoints.
    pub(super) asked: Vec<Provider>,
    /// The proxies that joined as the service; none of one outside of the mesh.
    pub(super) in_front: ProxyIndex,
    /// Those of them that were shut out.
    pub(super) revoked: ProxyIndex,
}

/// Who stands in front of an endpoint.
#[derive(Debug, Clone, Copy)]
pub(super) enum ProxyMatch<'a> {
    /// A proxy. Several are one that joined again: they are dialled alike.
    Proxy(&'a [Arc<JoinRecord>]),
    /// The same, and nothing but a dead one.
    Suspect(&'a [Arc<JoinRecord>]),
    /// Proxies that are dialled at different addresses: nobody can say which of them it is.
    Several(&'a [Arc<JoinRecord>]),
    /// One that was shut out, and no other has joined there since.
    Revoked(&'a JoinRecord),
    Nobody,
}

impl<'a> ProxyMatch<'a> {
    /// The proxies behind which the endpoint is.
    pub(super) fn proxies(self) -> &'a [Arc<JoinRecord>] {
        match self {
            Self::Proxy(records) | Self::Suspect(records) => records,
            Self::Several(_) | Self::Revoked(_) | Self::Nobody => &[],
        }
    }
}

impl EndpointClassifier<'_> {
    fn served_as(&self) -> &ServiceName {
        self.service.served_as()
    }

    pub(super) fn front(&self, endpoint: &Endpoint) -> ProxyMatch<'_> {
        let candidates = self.in_front.candidates(endpoint);
        let addresses: BTreeSet<_> = candidates.iter().map(|one| one.mesh_address).collect();
        if candidates.is_empty() {
            let revoked = self.revoked.candidates(endpoint).first();
            revoked.map_or(ProxyMatch::Nobody, |record| ProxyMatch::Revoked(record))
        } else if candidates.iter().all(|record| is_withdrawn(endpoint, record)) {
            ProxyMatch::Suspect(candidates)
        } else if addresses.len() > 1 {
            ProxyMatch::Several(candidates)
        } else {
            ProxyMatch::Proxy(candidates)
        }
    }

    /// Whether an endpoint takes part through a proxy in front of it, on this port of the service.
    pub(super) fn takes_part(&self, endpoint: &Endpoint, record: &JoinRecord, port: u16) -> bool {
        let has_in_force = record.participation.0.contains(&(self.served_as().clone(), port));
        has_in_force && !is_withdrawn(endpoint, record)
    }

    /// Through which of these proxies, which are dialled alike, an endpoint is called on this port of the service:
    /// those that take part, once they lead to it.
    pub(super) fn called<'r>(
        &self,
        endpoint: &Endpoint,
        records: &'r [Arc<JoinRecord>],
        port: &Port,
    ) -> impl Iterator<Item = &'r JoinRecord> {
        let leads = self.leads(endpoint, records, port);
        let taking = records.iter().map(|record| &**record);
        taking.filter(move |record| leads && self.takes_part(endpoint, record, port.number))
    }

    /// Whether the proxy in front of an endpoint leads to it. One that has heard of no application leads to where
    /// policy says. (Of a machine that joined again, the older record may have heard of it; who listens there is
    /// the newer one.)
    fn leads(&self, endpoint: &Endpoint, records: &[Arc<JoinRecord>], port: &Port) -> bool {
        let key = (self.served_as().clone(), port.number);
        let taking = records.iter().filter(|one| self.takes_part(endpoint, one, port.number));
        let newest = taking.max_by_key(|record| record.joined_at);
        self.target(endpoint, port) == port.target
            || newest.is_some_and(|record| !record.vacant.0.contains(&key))
    }

    /// At which port the application of an endpoint listens.
    pub(super) fn target(&self, endpoint: &Endpoint, port: &Port) -> u16 {
        // A provider knows one port of an instance, and not which of several service ports it is for.
        let is_only = self.service.ports.len() == 1;
        endpoint.port.filter(|_| is_only).unwrap_or(port.target)
    }

    /// Whether an endpoint is called in plaintext where it takes no part.
    pub(super) fn is_called_in_plaintext(
        &self,
        endpoint: &Endpoint,
        front: ProxyMatch<'_>,
    ) -> bool {
        self.takes_plaintext
            && self.is_asked(endpoint.provider)
            && !matches!(front, ProxyMatch::Suspect(_) | ProxyMatch::Revoked(_))
    }

    /// Whether policy itself asks a provider for the service's endpoints. Whoever may register in Consul may
    /// tag an instance as belonging to a service: that opens no way in plaintext.
    pub(super) fn is_asked(&self, provider: Provider) -> bool {
        match provider {
            Provider::Static => true,
            // One that is known by its proxy alone may have an application that nobody else reaches.
            Provider::Registered => false,
            external => self.asked.contains(&external),
        }
    }

    /// How an endpoint stands on all ports of the service. `past` are proxies whose certificates have ended.
    pub(super) fn stand(&self, endpoint: &Endpoint, past: &ProxyIndex) -> EndpointStatus {
        let front = self.front(endpoint);
        let in_front = match front {
            ProxyMatch::Proxy(records) | ProxyMatch::Suspect(records) => {
                self.foremost(endpoint, records)
            }
            ProxyMatch::Revoked(record) => Some(record),
            ProxyMatch::Several(_) => None,
            ProxyMatch::Nobody => past.candidates(endpoint).first().map(|record| &**record),
        };
        let state = match self.absence(endpoint, front, in_front) {
            _ if self.is_drained => State::Out(ExclusionReason::Drained),
            Some(why @ ExclusionReason::Excluded { .. }) => State::Out(why),
            None => State::Participant,
            Some(_) if self.service.external.is_some() => State::Outside,
            // It takes part, so that it is not called in plaintext on any port.
            Some(why @ ExclusionReason::Unheard { .. }) => State::Out(why),
            Some(why) if self.is_called_in_plaintext(endpoint, front) => State::Plaintext(why),
            Some(why) => State::Out(why),
        };
        // It is where its proxy is, unless its provider knows better.
        let mut endpoint = endpoint.clone();
        if let Some(record) = in_front.filter(|_| endpoint.locality.is_empty()) {
            endpoint.locality = record.locality.clone();
        }
        EndpointStatus {
            endpoint: Some(endpoint),
            proxy: in_front.map(|record| record.id),
            mesh_address: in_front.map(|record| record.mesh_address),
            state,
        }
    }

    /// The proxies in front of none of the endpoints.
    pub(super) fn without(&self, endpoints: &[Endpoint]) -> Vec<&JoinRecord> {
        let mut left: BTreeMap<ProxyId, &JoinRecord> =
            self.in_front.all().map(|record| (record.id, &**record)).collect();
        for record in endpoints.iter().flat_map(|one| self.in_front.candidates(one)) {
            left.remove(&record.id);
        }
        left.into_values().collect()
    }

    /// Why an endpoint does not take part; none if it does.
    fn absence(
        &self,
        endpoint: &Endpoint,
        front: ProxyMatch<'_>,
        in_front: Option<&JoinRecord>,
    ) -> Option<ExclusionReason> {
        if let Some(why) = endpoint.exclusion {
            return Some(ExclusionReason::Excluded { why });
        }
        let why = match front {
            ProxyMatch::Proxy(records) => {
                let is_missing =
                    |port: &&Port| self.called(endpoint, records, port).next().is_none();
                let missing: Vec<_> = self.service.ports.iter().filter(is_missing).collect();
                let ports: Vec<_> = missing.iter().map(|port| port.number).collect();
                let is_taken = |port: &&Port| {
                    records.iter().any(|record| self.takes_part(endpoint, record, port.number))
                };
                let is_claimed = |record: &Arc<JoinRecord>| record.claimed_at.is_some();
                match ports.as_slice() {
                    [] => return None,
                    _ if missing.iter().all(is_taken) => ExclusionReason::Unheard { ports },
                    _ if records.iter().any(is_claimed) => ExclusionReason::NotTaken { ports },
                    _ => ExclusionReason::Unclaimed,
                }
            }
            ProxyMatch::Suspect(records) => {
                let since = records.iter().filter_map(|record| record.suspect_since).max();
                ExclusionReason::Suspect { since: since.unwrap_or_default() }
            }
            ProxyMatch::Several(records) => ExclusionReason::SeveralProxies {
                proxies: records.iter().map(|one| one.id).collect(),
            },
            ProxyMatch::Revoked(_) => ExclusionReason::Revoked,
            ProxyMatch::Nobody if in_front.is_some() => ExclusionReason::Expired,
            ProxyMatch::Nobody => ExclusionReason::NoProxy,
        };
        Some(why)
    }

    /// Of records that are one proxy, the one that has come furthest.
    fn foremost<'a>(
        &self,
        endpoint: &Endpoint,
        records: &'a [Arc<JoinRecord>],
    ) -> Option<&'a JoinRecord> {
        let ports = |record: &JoinRecord| {
            let ports = self.service.ports.iter();
            ports.filter(|port| self.takes_part(endpoint, record, port.number)).count()
        };
        let foremost = records.iter().max_by_key(|record| (ports(record), record.joined_at));
        foremost.map(|record| &**record)
    }
}

/// Whether an endpoint is not called as its proxy may be dead. A provider that looks after its endpoints
/// knows better whether they live.
fn is_withdrawn(endpoint: &Endpoint, record: &JoinRecord) -> bool {
    !endpoint.provider.is_external() && record.suspect_since.is_some()
}
