//! The revocation of proxies by the admin API, and its prediction.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use ironmesh_admin::ApiError;
use ironmesh_analysis::reach::reachable_ports;
use ironmesh_api::{
    MAX_REASON, MAX_REVOCATIONS, ReachView, RevokeRequest, Revoked, RevokedProxies,
};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{JoinRecord, ProxyId, Revocation, ServicePort, SharedCertificate, Snapshot};
use jiff::Timestamp;

use super::RunningControlPlane;
use super::proxies::{resolve, unknown};
use crate::revocation::revoke;

/// The minimum length of the beginning of a UUID: a revocation cannot be undone, and a typing error must not name a
/// different proxy.
const SHORTEST: usize = 8;

impl RunningControlPlane {
    /// Revokes proxies, all or none; or predicts that.
    pub(super) fn revoke_proxies(
        &self,
        request: &RevokeRequest,
    ) -> Result<RevokedProxies, ApiError> {
        let ids = self.resolve_all(&request.proxies)?;
        let reason = request.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
        if let Some(reason) = reason {
            check_reason(reason)?;
        }
        let now = Timestamp::now();
        let records: Vec<_> = ids.iter().filter_map(|id| self.register.get(*id)).collect();
        // The effects are those on the mesh before the revocation.
        let snapshot = self.feeds.snapshot.borrow().clone();
        let without_endpoint =
            snapshot.as_ref().map(|snapshot| lost_ports(snapshot, &records)).unwrap_or_default();
        let mut proxies: Vec<_> =
            ids.iter().map(|id| self.effect(*id, snapshot.as_deref(), now)).collect();
        if !request.dry_run {
            let revocation = Revocation::by_operator(now, reason.map(str::to_owned));
            let revoked = revoke(&self.register, &self.hub, &records, &revocation)
                .map_err(|error| ApiError::Internal(chain(&error)))?;
            let by_id: BTreeMap<_, _> =
                records.iter().map(|record| record.id).zip(revoked).collect();
            for proxy in &mut proxies {
                let revocation = match by_id.get(&proxy.id) {
                    Some(revocation) => revocation.clone(),
                    None => self.discard(proxy.id, &revocation)?,
                };
                proxy.revocation = Some(revocation.into());
            }
        }
        Ok(RevokedProxies { dry_run: request.dry_run, proxies, without_endpoint })
    }

    /// The proxies that these names or beginnings of UUIDs name, each once. An error lists everything that names no proxy,
    /// or several.
    fn resolve_all(&self, names: &[String]) -> Result<Vec<ProxyId>, ApiError> {
        if names.is_empty() || names.len() > MAX_REVOCATIONS {
            return Err(ApiError::BadRequest(format!(
                "a request revokes 1 to {MAX_REVOCATIONS} proxies, and this one has {}",
                names.len()
            )));
        }
        let records = self.register.all_records();
        let quarantined = self.register.quarantined();
        let known: BTreeSet<_> = records.keys().copied().chain(quarantined).collect();
        let (mut ids, mut errors) = (Vec::new(), Vec::new());
        for name in names {
            let found = resolve(name, SHORTEST, &records, known.iter().copied());
            match found.and_then(|id| known.contains(&id).then_some(id).ok_or_else(|| unknown(&id)))
            {
                Ok(id) if ids.contains(&id) => {}
                Ok(id) => ids.push(id),
                Err(error) => errors.push(error),
            }
        }
        match errors.len() {
            0 => Ok(ids),
            1 if names.len() == 1 => Err(errors.remove(0)),
            _ => {
                let problems: Vec<_> = errors.iter().map(ToString::to_string).collect();
                let text = format!("no proxy was revoked: {}", problems.join("; "));
                let are_unknown = errors.iter().all(|one| matches!(one, ApiError::NotFound(_)));
                Err(if are_unknown { ApiError::NotFound(text) } else { ApiError::BadRequest(text) })
            }
        }
    }

    /// The effect of the revocation of a proxy. A quarantined record is not served, and has none.
    fn effect(&self, id: ProxyId, snapshot: Option<&Snapshot>, now: Timestamp) -> Revoked {
        let record = self.register.get(id);
        let (record, key) = (record.as_deref(), id.to_string());
        let endpoints: Vec<_> = match (record, snapshot) {
            (Some(record), Some(snapshot)) => called_ports(snapshot, record).collect(),
            _ => Vec::new(),
        };
        // An operator may revoke a proxy that has left by itself: then peers refuse it.
        let earlier = record.and_then(|record| record.revoked.clone());
        let earlier = earlier.filter(Revocation::is_by_operator);
        Revoked {
            id,
            name: record.map_or_else(|| id.into(), JoinRecord::display_name),
            is_old: earlier.is_some(),
            revocation: earlier.map(Into::into),
            streams: self.hub.streams(&key),
            mesh_address: record.map(|record| record.mesh_address),
            endpoints,
            reach: record.map(|record| reach(record, snapshot, now)).unwrap_or_default(),
        }
    }

    /// Removes a quarantined join record, with which its proxy is not served.
    fn discard(&self, id: ProxyId, revocation: &Revocation) -> Result<Revocation, ApiError> {
        let discarded = self.register.discard_quarantined(id);
        if !discarded.map_err(|error| ApiError::Internal(chain(&error)))? {
            return Err(unknown(&id));
        }
        tracing::warn!(proxy = %id, reason = revocation.reason, "quarantined join record removed");
        Ok(revocation.clone())
    }
}

/// The service ports that the certificates of a proxy let it call, by the end of their validity.
pub(super) fn reach(
    record: &JoinRecord,
    snapshot: Option<&Snapshot>,
    now: Timestamp,
) -> Vec<ReachView> {
    let Some(snapshot) = snapshot else { return Vec::new() };
    let mut until: BTreeMap<ServicePort, Timestamp> = BTreeMap::new();
    let own = record.workload_certificates.iter().filter(|one| one.expires_at > now);
    let own = own.map(|one| (&one.account, one.expires_at));
    let shared = shared_certificates(record, snapshot);
    let shared = shared.iter().filter(|one| one.expires_at > now);
    for (account, end) in own.chain(shared.map(|one| (&one.account, one.expires_at))) {
        for port in reachable_ports(snapshot, account) {
            let known = until.entry(port).or_insert(end);
            *known = end.max(*known);
        }
    }
    let mut reach: BTreeMap<Timestamp, BTreeSet<ServicePort>> = BTreeMap::new();
    for (port, end) in until {
        reach.entry(end).or_default().insert(port);
    }
    reach.into_iter().map(|(until, ports)| ReachView { until, ports }).collect()
}

/// The service ports for which callers dial a proxy.
pub(super) fn called_ports(
    snapshot: &Snapshot,
    record: &JoinRecord,
) -> impl Iterator<Item = ServicePort> {
    let services = record.services.iter().filter_map(|name| snapshot.service(name));
    let ports = services.flat_map(|service| service.service_ports().map(|(port, _)| port));
    ports.filter(|port| {
        let dialled = snapshot.endpoints.get(port);
        dialled.is_some_and(|dialled| dialled.iter().any(|one| one.address == record.mesh_address))
    })
}

/// The service ports whose only endpoints are these proxies.
fn lost_ports(snapshot: &Snapshot, records: &[Arc<JoinRecord>]) -> Vec<ServicePort> {
    let addresses: BTreeSet<_> = records.iter().map(|record| record.mesh_address).collect();
    let ports: BTreeSet<_> =
        records.iter().flat_map(|record| called_ports(snapshot, record)).collect();
    let is_lost = |port: &ServicePort| {
        let dialled = snapshot.endpoints.get(port).into_iter().flat_map(|dialled| dialled.iter());
        dialled.into_iter().all(|one| addresses.contains(&one.address))
    };
    ports.into_iter().filter(is_lost).collect()
}

/// The certificates that a proxy shares with others of its accounts.
fn shared_certificates(record: &JoinRecord, snapshot: &Snapshot) -> Vec<SharedCertificate> {
    if let Some(refused) = &record.refused {
        return refused.clone();
    }
    let accounts = record.shared_accounts.iter();
    let known = accounts.filter_map(|account| snapshot.certificates.get(account));
    known.flat_map(|certificate| certificate.with_earlier()).collect()
}

pub(super) fn check_reason(reason: &str) -> Result<(), ApiError> {
    let but = if let Some(control) = reason.chars().find(|c| c.is_control()) {
        format!("holds the control character {control:?}")
    } else if reason == Revocation::LEFT {
        "is that of a proxy which leaves by itself".to_owned()
    } else if reason.len() > MAX_REASON {
        format!("has {} bytes", reason.len())
    } else {
        return Ok(());
    };
    let words =
        format!("a reason must be one line of at most {MAX_REASON} bytes, and this one {but}");
    Err(ApiError::BadRequest(words))
}
