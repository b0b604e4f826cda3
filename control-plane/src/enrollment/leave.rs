//! The requests of a proxy about itself: it leaves the mesh, rejoins it, or reads its state.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use ironmesh_catalog::{
    Actor, CertificateRecognition, JoinRecord, JournalEntry, JournalKind, ProxyId, Revocation,
    RevocationCause,
};
use ironmesh_cert::peer::VerifiedProxy;
use ironmesh_enrollment::{
    EnrollmentError, Leave, LeaveResult, MAX_NAMED_LAGGARDS, ProxyStatus, ProxySync,
};
use jiff::Timestamp;
use tokio::time::{Instant, timeout};

use super::{CertificateAlarm, MachineEnrollment, entry, subject, unavailable};
use crate::leave_table::LeaveMark;
use crate::peers::Peers;
use crate::reconciler::convergence::{Convergence, Lag};
use crate::register::Register;
use crate::revocation::revoke;

/// How long a leave waits for the callers.
pub(super) const LEAVE_WAIT: Duration = Duration::from_secs(15);

impl MachineEnrollment {
    /// Marks the proxy as leaving.
    pub(super) fn begin_leave(
        &self,
        proxy: &VerifiedProxy,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<Leave, EnrollmentError> {
        let id = proxy.identity.proxy;
        if let Some(left) = self.register.get(id).and_then(|record| has_left(&record)) {
            // The response was lost, and the machine asks again.
            let result = left_for_good(left);
            return Ok(Leave { now: result.clone(), wait: Box::pin(async { result }) });
        }
        let record = self.identify(proxy, peer, now).inspect_err(|error| {
            self.record_leave(id, peer, None, Some(error), now);
        })?;
        let client = id.to_string();
        let process_starts = self.hub.process_starts(&client);
        let is_connected = self.hub.streams(&client) > 0;
        let mark = self.leaves.leave(id, process_starts, is_connected, now, Instant::now());
        self.peers.note(id, |note| {
            (note.leaving_since, note.returned) = (Some(mark.since), None);
        });
        if mark.is_new {
            tracing::info!(proxy = %id, name = %record.display_name(), "proxy leaves the mesh");
            self.record_leave(id, peer, None, None, now);
        }
        let (mut convergence, register) = (self.convergence.clone(), Arc::clone(&self.register));
        let (peers, leaves) = (Arc::clone(&self.peers), Arc::clone(&self.leaves));
        let present = leave_result(&convergence.borrow_and_update(), &peers, &register, id, mark);
        let wait = Box::pin(async move {
            let is_acked = |convergence: &Convergence| convergence.has_acked_leave(id, mark.change);
            let mut news = peers.changes();
            let all = async {
                // (An error means that the control plane stops.)
                let _ = convergence.wait_for(is_acked).await;
                let since = || leaves.since(id).unwrap_or(mark.since);
                while !peers.have_acked_leave(id, since()) && news.changed().await.is_ok() {}
            };
            // (The result tells whether they have.)
            let _ = timeout(LEAVE_WAIT, all).await;
            // Of two control planes that got the request, the earlier one has begun it.
            let mark = LeaveMark { since: leaves.since(id).unwrap_or(mark.since), ..mark };
            let result = leave_result(&convergence.borrow(), &peers, &register, id, mark);
            if !result.acked {
                tracing::warn!(proxy = %id, laggards = ?result.laggards, "leave is not ACKed by all callers");
            }
            result
        });
        Ok(Leave { now: present, wait })
    }

    /// Revokes a proxy that has left, at its own request.
    pub(super) fn revoke_at_own_request(
        &self,
        proxy: &VerifiedProxy,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<(), EnrollmentError> {
        let record = self.identify(proxy, peer, now)?;
        let revocation = Revocation::left(now);
        let records = std::slice::from_ref(&record);
        revoke(&self.register, &self.hub, records, &revocation).map_err(|e| unavailable(&e))?;
        self.leaves.rejoin(record.id);
        self.journal.record(JournalEntry {
            origin: Some(peer.to_string()),
            subject: subject(&record),
            message: Some(Revocation::LEFT.to_owned()),
            ..JournalEntry::new(now, JournalKind::Revoke, Actor::Proxy)
        });
        Ok(())
    }

    /// Ends the leave of a proxy.
    pub(super) fn end_leave(
        &self,
        proxy: &VerifiedProxy,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<ProxyStatus, EnrollmentError> {
        let record = self.identify(proxy, peer, now)?;
        if self.leaves.rejoin(record.id) {
            tracing::info!(proxy = %record.id, reason = "its machine requested it", "leave ended");
            self.record_leave(record.id, peer, Some("rejoined the mesh"), None, now);
        }
        Ok(self.status_of(&record))
    }

    /// The state of the proxy that presents its certificate.
    pub(super) fn own_status(
        &self,
        proxy: &VerifiedProxy,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<ProxyStatus, EnrollmentError> {
        Ok(self.status_of(&*self.identify(proxy, peer, now)?))
    }

    /// The record of the proxy that presents this certificate, as far as xDS would accept it, too.
    pub(super) fn identify(
        &self,
        proxy: &VerifiedProxy,
        peer: SocketAddr,
        now: Timestamp,
    ) -> Result<Arc<JoinRecord>, EnrollmentError> {
        let rejected = |problem: String| Err(EnrollmentError::CertificateRejected(problem));
        let id = proxy.identity.proxy;
        let Some(record) = self.register.get(id) else {
            return rejected(format!("proxy {id} is not enrolled in this mesh"));
        };
        let name = record.display_name();
        if let Some(revocation) = &record.revoked {
            return Err(EnrollmentError::Revoked(format!("proxy {name} was {revocation}")));
        }
        if record.is_enrollment_expired(now) {
            return rejected(format!("the enrollment of proxy {name} has expired"));
        }
        let recognition = record.recognize(&proxy.presented(), now);
        if let Some(alarm) = CertificateAlarm::of(recognition) {
            self.alarms.raise(&record, alarm, peer, now);
        }
        match recognition {
            CertificateRecognition::Current
            | CertificateRecognition::Predecessor
            | CertificateRecognition::Newer => Ok(record),
            CertificateRecognition::Older => rejected(format!(
                "this certificate of proxy {name} is an old copy: it was renewed, and its successor is in use"
            )),
            CertificateRecognition::OtherKey => rejected(format!(
                "this certificate of proxy {name} is for another key than the one that the proxy enrolled with"
            )),
        }
    }

    fn status_of(&self, record: &JoinRecord) -> ProxyStatus {
        let client = record.id.to_string();
        let convergence = self.convergence.borrow();
        let revision = |acked| convergence.revision_of(acked).map(ToString::to_string);
        let active_revision = convergence.revision().map(ToString::to_string);
        let laggard = convergence.laggards().get(&record.id);
        let (sync, sync_since, acked_revision) = if self.hub.streams(&client) == 0 {
            if self.peers.connection(record.id).is_some() {
                (ProxySync::OtherControlPlane, None, None)
            } else {
                let departed = convergence.departed().get(&record.id);
                let since = departed.map(|departed| departed.since).or(record.unreachable_since);
                let revision = departed.and_then(|one| revision(one.acked.policy));
                (ProxySync::Disconnected, since, revision)
            }
        } else if let Some(laggard) = laggard {
            (laggard.lag.into(), Some(laggard.since), revision(laggard.acked.policy))
        } else if self.hub.is_synced(&client) {
            (ProxySync::Synced, None, active_revision.clone())
        } else {
            // The reconciler has not examined its new connection yet.
            (ProxySync::Updating, None, None)
        };
        ProxyStatus {
            id: record.id,
            name: record.display_name(),
            services: record.services.clone(),
            sync,
            sync_since,
            acked_revision,
            active_revision,
            certificate_expires_at: record.certificate_expires_at,
            leaving_since: self.leaves.since(record.id),
            cordoned_since: record.cordon.as_ref().map(|cordon| cordon.since),
        }
    }

    fn record_leave(
        &self,
        id: ProxyId,
        peer: SocketAddr,
        message: Option<&str>,
        rejected: Option<&EnrollmentError>,
        now: Timestamp,
    ) {
        let about = self.register.get(id).map(|record| subject(&record)).unwrap_or_default();
        let rejected = rejected.map(ToString::to_string);
        let rejected = rejected.as_deref();
        let entry = entry(JournalKind::Leave, Actor::Proxy, peer, about, rejected, now);
        self.journal.record(JournalEntry { message: message.map(str::to_owned), ..entry });
    }
}

impl From<Lag> for ProxySync {
    fn from(lag: Lag) -> Self {
        match lag {
            Lag::Updating => Self::Updating,
            Lag::Nacked => Self::Nacked,
            Lag::Held => Self::Held,
        }
    }
}

/// When a proxy was revoked at its own request.
fn has_left(record: &JoinRecord) -> Option<Timestamp> {
    let revocation = record.revoked.as_ref()?;
    (revocation.cause() == RevocationCause::Left).then_some(revocation.at)
}

/// The result for a proxy that was revoked at its own request.
fn left_for_good(at: Timestamp) -> LeaveResult {
    LeaveResult {
        acked: true,
        laggards: Vec::new(),
        more_laggards: 0,
        leaving_since: at,
        revoked: true,
    }
}

/// The present result of a leave.
fn leave_result(
    convergence: &Convergence,
    peers: &Peers,
    register: &Register,
    id: ProxyId,
    mark: LeaveMark,
) -> LeaveResult {
    let name = |laggard: ProxyId| {
        register.get(laggard).map_or_else(|| laggard.into(), |record| record.display_name())
    };
    let pending = || convergence.pending_leave(id, mark.change);
    LeaveResult {
        acked: convergence.has_acked_leave(id, mark.change)
            && peers.have_acked_leave(id, mark.since),
        laggards: pending().take(MAX_NAMED_LAGGARDS).map(name).collect(),
        more_laggards: pending().count().saturating_sub(MAX_NAMED_LAGGARDS),
        leaving_since: mark.since,
        revoked: false,
    }
}
