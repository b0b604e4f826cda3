//! Cordons by the admin API: an operator takes a proxy out of service, and returns it.

use std::sync::Arc;

use ironmesh_admin::{ApiError, Principal};
use ironmesh_api::{
    CordonChange, CordonRequest, CordonResult, CordonView, MAX_CORDON_LAGGARDS, MachineKind,
};
use ironmesh_catalog::text::chain;
use ironmesh_catalog::{
    CertificateSource, CordonMode, Health, JoinRecord, MachineDrainState, ProxyId, ServicePort,
    Snapshot,
};
use jiff::Timestamp;

use super::RunningControlPlane;
use super::proxies::unknown;
use super::revocation::{called_ports, check_reason};
use crate::enrollment::{ORDERED_INTERVAL, report_interval};
use crate::journal;
use crate::register::CordonOrder;

impl RunningControlPlane {
    /// Cordons, drains or uncordons the proxy that `name` names, and records that in the journal.
    pub(super) fn set_cordon(
        &self,
        principal: &Principal,
        name: &str,
        change: CordonChange,
        request: &CordonRequest,
    ) -> Result<CordonResult, ApiError> {
        let result = self.apply_cordon(principal, name, change, request);
        let is_change = result.as_ref().map_or(true, |result| !result.is_old);
        if is_change && !request.dry_run {
            let record = result.as_ref().ok().and_then(|result| self.register.get(result.id));
            let outcome = match (&result, record.as_deref()) {
                (Ok(_), Some(record)) => Ok(record),
                (Err(error), _) => Err(error),
                (Ok(_), None) => return result,
            };
            self.journal
                .record_and_wait(journal::cordon_change(principal, name, change, request, outcome));
        }
        result
    }

    fn apply_cordon(
        &self,
        principal: &Principal,
        name: &str,
        change: CordonChange,
        request: &CordonRequest,
    ) -> Result<CordonResult, ApiError> {
        let record = self.find(name)?;
        if let Some(revocation) = &record.revoked {
            return Err(ApiError::BadRequest(format!(
                "proxy {} was {revocation}: it is out of service for good",
                record.display_name()
            )));
        }
        let reason = request.reason.as_deref().map(str::trim).filter(|reason| !reason.is_empty());
        reason.map_or(Ok(()), check_reason)?;
        // The effects are those on the mesh before the change.
        let snapshot = self.feeds.snapshot.borrow().clone();
        let (endpoints, without_endpoint) = match (&snapshot, change) {
            (Some(snapshot), CordonChange::Cordon | CordonChange::Drain) => {
                lost_ports(snapshot, &record)
            }
            _ => (Vec::new(), Vec::new()),
        };
        let ended = record.cordon.clone().filter(|_| change == CordonChange::Uncordon);
        let is_changed = if request.dry_run {
            is_effective(&record, change)
        } else {
            let mode = match change {
                CordonChange::Cordon => Some(CordonMode::Cordon),
                CordonChange::Drain => Some(CordonMode::Drain),
                CordonChange::Uncordon => None,
            };
            let (id, by) = (record.id, journal::principal_name(principal));
            let (reason, at) = (reason.map(str::to_owned), Timestamp::now());
            let changed = match mode {
                Some(mode) => self.register.cordon(id, &CordonOrder { mode, by, reason, at }),
                None => self.register.uncordon(id),
            };
            changed.map_err(|error| ApiError::Internal(chain(&error)))?
        };
        let record = self.register.get(record.id).ok_or_else(|| unknown(&name))?;
        if is_changed && !request.dry_run {
            let (proxy, name) = (record.id, record.display_name());
            let change = change.word();
            tracing::info!(%proxy, %name, change, reason, "an operator changed the cordon of a proxy");
        }
        let state = self.cordon_result(&record, (change == CordonChange::Uncordon).then_some(true));
        Ok(CordonResult {
            dry_run: request.dry_run,
            is_old: !is_changed,
            ended: ended.map(CordonView::from),
            endpoints,
            without_endpoint,
            ..state
        })
    }

    /// How far the callers of a proxy have ACKed its cordon.
    pub(super) fn state_of_cordon(&self, id: ProxyId) -> Result<CordonResult, ApiError> {
        let record = self.register.get(id).ok_or_else(|| unknown(&id))?;
        Ok(self.cordon_result(&record, None))
    }

    /// The present state of a proxy. `acked` decides, if it is given, whether its callers have ACKed it.
    fn cordon_result(&self, record: &Arc<JoinRecord>, acked: Option<bool>) -> CordonResult {
        let id = record.id;
        let name_of = |id: ProxyId| {
            self.register.get(id).map_or_else(|| id.into(), |record| record.display_name())
        };
        let since = record.cordon.as_ref().map(|cordon| cordon.since);
        // Without the mark, the reconciler has not followed the record yet.
        let mark = self.leaves.cordon(id).filter(|mark| Some(mark.since) == since);
        let convergence = self.feeds.convergence.borrow().clone();
        let is_acked_here = mark.is_some_and(|mark| convergence.has_acked_leave(id, mark.change));
        let pending =
            || mark.into_iter().flat_map(|mark| convergence.pending_leave(id, mark.change));
        let pending_control_planes = match (since, acked) {
            (Some(since), None) => self.peers.pending_cordon(id, since),
            _ => Vec::new(),
        };
        let machine = machine_kind(record);
        let is_ordered = record.cordon.as_ref().is_some_and(|cordon| cordon.drain.is_some());
        let learns = if is_ordered && has_reported(record) {
            ORDERED_INTERVAL
        } else {
            report_interval(self.register.records().len(), false)
        };
        CordonResult {
            id,
            name: record.display_name(),
            dry_run: false,
            is_old: false,
            cordon: record.cordon.clone().map(CordonView::from),
            ended: None,
            acked: acked.unwrap_or(is_acked_here && pending_control_planes.is_empty()),
            laggards: pending().take(MAX_CORDON_LAGGARDS).map(name_of).collect(),
            more_laggards: pending().count().saturating_sub(MAX_CORDON_LAGGARDS),
            pending_control_planes,
            connected: self.is_connected(id),
            machine,
            agent_learns_in_seconds: (machine == MachineKind::Agent).then_some(learns.as_secs()),
            mesh_address: record.mesh_address,
            endpoints: Vec::new(),
            without_endpoint: Vec::new(),
        }
    }
}

/// Whether a change would change the record.
fn is_effective(record: &JoinRecord, change: CordonChange) -> bool {
    let mode = record.cordon.as_ref().map(ironmesh_catalog::Cordon::mode);
    match change {
        CordonChange::Cordon => mode.is_none(),
        CordonChange::Drain => mode != Some(CordonMode::Drain),
        CordonChange::Uncordon => mode.is_some(),
    }
}

/// Whether the agent has reported about the drain, and so repeats its reports soon.
fn has_reported(record: &JoinRecord) -> bool {
    let drain = record.cordon.as_ref().and_then(|cordon| cordon.drain.as_ref());
    drain.is_some_and(|drain| drain.machine.is_some())
}

/// What runs the Envoy of a proxy.
fn machine_kind(record: &JoinRecord) -> MachineKind {
    let drain = record.cordon.as_ref().and_then(|cordon| cordon.drain.as_ref());
    let state = drain.and_then(|drain| drain.machine).map(|machine| machine.state);
    match (state, &record.versions.agent, record.certificates) {
        (Some(MachineDrainState::Unsupervised), ..) => MachineKind::ByHand,
        (_, Some(_), _) => MachineKind::Agent,
        (_, None, CertificateSource::Agent) => MachineKind::OlderAgent,
        _ if record.claimed_at.is_none() => MachineKind::Unknown,
        _ => MachineKind::ByHand,
    }
}

/// The service ports for which callers dial a proxy, and those of them without any other available endpoint.
fn lost_ports(snapshot: &Snapshot, record: &JoinRecord) -> (Vec<ServicePort>, Vec<ServicePort>) {
    let called: Vec<_> = called_ports(snapshot, record).collect();
    let is_left = |port: &ServicePort| {
        let hosts = snapshot.endpoints.get(port).into_iter().flat_map(|hosts| hosts.iter());
        let mut others = hosts.filter(|host| host.address != record.mesh_address);
        others.any(|host| host.health == Health::Healthy)
    };
    let lost = called.iter().filter(|port| !is_left(port)).cloned().collect();
    (called, lost)
}

#[cfg(test)]
mod tests {
    use ironmesh_catalog::{Drain, MachineDrain, ProxyVersions, UnknownFields};

    use super::*;

    #[test]
    fn machine_is_known_by_its_agent_and_its_connections() {
        let id = "11112222-0000-4000-8000-000000000001".parse().unwrap();
        let address = std::net::SocketAddr::from(([10, 0, 0, 1], 15003));
        let services = vec!["shop/web".parse().unwrap()];
        let now = Timestamp::now();
        let unclaimed = JoinRecord::new(id, services, address, now, Timestamp::MAX);
        assert_eq!(machine_kind(&unclaimed), MachineKind::Unknown);
        let by_hand = JoinRecord { claimed_at: Some(now), ..unclaimed };
        assert_eq!(machine_kind(&by_hand), MachineKind::ByHand);
        let older = JoinRecord { certificates: CertificateSource::Agent, ..by_hand };
        assert_eq!(machine_kind(&older), MachineKind::OlderAgent);
        let agent = Some("0.2.0".to_owned());
        let versions = ProxyVersions { agent, ..ProxyVersions::default() };
        let with_agent = JoinRecord { versions, ..older };
        assert_eq!(machine_kind(&with_agent), MachineKind::Agent);
        let state = MachineDrainState::Unsupervised;
        let drain = Drain {
            since: now,
            machine: Some(MachineDrain { state, since: now }),
            unknown: UnknownFields::default(),
        };
        let mode = CordonMode::Drain;
        let cordon = ironmesh_catalog::Cordon::requested(None, mode, None, None, now).unwrap();
        let cordon = Some(ironmesh_catalog::Cordon { drain: Some(drain), ..cordon });
        assert_eq!(machine_kind(&JoinRecord { cordon, ..with_agent }), MachineKind::ByHand);
    }
}
