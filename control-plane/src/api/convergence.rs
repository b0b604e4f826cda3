//! Convergence for the admin API: which proxies have not ACKed everything, and whether a policy revision is synced.

use std::sync::Arc;

use ironmesh_admin::ApiError;
use ironmesh_api::{
    ConvergenceView, LaggardView, MAX_LAGGARDS, NackView, SyncState, WaitAnswer, WaitOutcome,
    WaitRequest,
};
use ironmesh_catalog::{CertificateState, JoinRecord, PolicyRevision, ProxyId};
use jiff::Timestamp;

use super::RunningControlPlane;
use crate::reconciler::convergence::{Convergence, Generations, Laggard, Target};

impl RunningControlPlane {
    pub(super) fn convergence_view(&self) -> ConvergenceView {
        let convergence = self.feeds.convergence.borrow().clone();
        let lagging = convergence.laggards().len();
        let laggards = convergence.laggards().iter().take(MAX_LAGGARDS);
        ConvergenceView {
            revision: convergence.revision().map(ToString::to_string),
            synced: convergence.connected().saturating_sub(lagging),
            lagging,
            disconnected: convergence.departed().len(),
            laggards: laggards
                .filter_map(|(id, laggard)| self.laggard_view(&convergence, *id, laggard))
                .collect(),
        }
    }

    pub(super) fn wait_answer(&self, request: &WaitRequest) -> Result<WaitAnswer, ApiError> {
        // Before convergence, which may not have reached a revision that has just become active.
        let specification = self.policy.borrow().specification.clone();
        let newest = specification.map(|specification| specification.revision.to_string());
        let convergence = self.feeds.convergence.borrow().clone();
        let is_to_come =
            request.may_become_active || request.was_active || request.revision.is_none();
        let Some(revision) = request.revision.clone().or_else(|| newest.clone()) else {
            return Ok(answer(WaitOutcome::NotActive, String::new()));
        };
        let (policy, active) = match (convergence.find(&revision), convergence.revision()) {
            (Target::Active(policy), Some(active)) => (policy, active),
            // The reconciler may not have reached it yet, but the source has left it.
            _ if request.was_active
                && newest.as_ref().is_some_and(|newest| !newest.starts_with(&revision)) =>
            {
                return Ok(WaitAnswer {
                    superseded_by: newest,
                    ..answer(WaitOutcome::Superseded, revision)
                });
            }
            _ if is_to_come => return Ok(answer(WaitOutcome::NotActive, revision)),
            (Target::Superseded(by), _) => {
                return Ok(WaitAnswer {
                    superseded_by: Some(by.to_string()),
                    ..answer(WaitOutcome::Superseded, revision)
                });
            }
            (_, active) => return Err(unknown(&revision, active)),
        };
        let (count, first) = self.pending(&convergence, policy, request.include_disconnected);
        let control_planes = self.peers.behind(&active.to_string());
        let is_synced = count == 0 && control_planes.is_empty() && *self.feeds.ready.borrow();
        let outcome = if is_synced { WaitOutcome::Synced } else { WaitOutcome::Pending };
        let views = first.into_iter().filter_map(|pending| match pending {
            Pending::Laggard(id, laggard) => self.laggard_view(&convergence, id, &laggard),
            Pending::AtPeer(record, since) => Some(LaggardView {
                since: Some(since),
                nacks: self.all_inactive(record.id),
                ..view(&record, SyncState::Nacked)
            }),
            Pending::Absent(record, state) => Some(absent_view(&convergence, &record, state)),
        });
        Ok(WaitAnswer {
            pending: count,
            proxies: views.collect(),
            control_planes,
            ..answer(outcome, active.to_string())
        })
    }

    /// The proxies that have not ACKed this change of policy, which is the newest: their count, and the first
    /// [`MAX_LAGGARDS`].
    fn pending(
        &self,
        convergence: &Convergence,
        policy: u64,
        include_disconnected: bool,
    ) -> (usize, Vec<Pending>) {
        let mut count = 0;
        let mut first = Vec::new();
        let mut add = |pending: &dyn Fn() -> Option<Pending>| {
            count += 1;
            if first.len() < MAX_LAGGARDS {
                first.extend(pending());
            }
        };
        for (id, laggard) in convergence.pending_policy() {
            add(&|| Some(Pending::Laggard(*id, laggard.clone())));
        }
        let active = convergence.revision().map(ToString::to_string).unwrap_or_default();
        for (id, since) in self.peers.nacking(&active) {
            let is_not_here = self.hub.streams(&id.to_string()) == 0;
            if let Some(record) = self.register.get(id).filter(|_| is_not_here) {
                add(&|| Some(Pending::AtPeer(Arc::clone(&record), since)));
            }
        }
        for (id, _) in convergence.lost_while_pending(policy) {
            let record = self.register.get(*id).filter(|one| one.is_in_use(Timestamp::now()));
            if let Some(record) = record {
                add(&|| Some(Pending::Absent(Arc::clone(&record), SyncState::Disconnected)));
            }
        }
        // A proxy that was connected before the restart may have an older revision until it is back.
        let grace = self.feeds.disconnected.borrow().grace;
        if !include_disconnected && grace.is_none() {
            return (count, first);
        }
        for record in self.register.records().values() {
            let is_connected = self.is_connected(record.id);
            let was_connected =
                record.certificate_state(Timestamp::now()) == CertificateState::Claimed;
            if is_connected || !was_connected {
                continue;
            }
            let departed = convergence.departed().get(&record.id);
            if departed.is_some_and(|departed| departed.was_lost_while_pending(policy)) {
                continue;
            }
            let has_acked = departed.is_some_and(|departed| departed.acked.policy >= policy);
            let is_expected = departed.is_none() && record.unreachable_since.is_none();
            let state = match grace {
                Some(_) if is_expected => SyncState::Reconnecting,
                _ if include_disconnected && !has_acked => SyncState::Disconnected,
                _ => continue,
            };
            add(&|| Some(Pending::Absent(Arc::clone(record), state)));
        }
        (count, first)
    }

    fn laggard_view(
        &self,
        convergence: &Convergence,
        id: ProxyId,
        laggard: &Laggard,
    ) -> Option<LaggardView> {
        let record = self.register.get(id)?;
        Some(LaggardView {
            state: laggard.lag.into(),
            since: Some(laggard.since),
            acked_revision: acked_revision(convergence, laggard.acked),
            nacks: self.all_inactive(id),
            ..view(&record, SyncState::Updating)
        })
    }

    /// The resources that a proxy NACKs, and those that are withheld from it.
    fn all_inactive(&self, id: ProxyId) -> Vec<NackView> {
        let (mut all, withheld) = self.inactive_resources(id);
        all.extend(withheld);
        all
    }
}

/// A proxy that has not ACKed a revision.
enum Pending {
    Laggard(ProxyId, Laggard),
    /// It NACKs resources at another control plane, since then.
    AtPeer(Arc<JoinRecord>, Timestamp),
    Absent(Arc<JoinRecord>, SyncState),
}

fn absent_view(convergence: &Convergence, record: &JoinRecord, state: SyncState) -> LaggardView {
    let departed = convergence.departed().get(&record.id);
    LaggardView {
        since: departed.map(|departed| departed.since).or(record.unreachable_since),
        acked_revision: departed.and_then(|departed| acked_revision(convergence, departed.acked)),
        ..view(record, state)
    }
}

fn view(record: &JoinRecord, state: SyncState) -> LaggardView {
    LaggardView {
        proxy: record.id,
        name: record.display_name(),
        services: record.services.clone(),
        mesh_address: record.mesh_address,
        state,
        since: None,
        acked_revision: None,
        nacks: Vec::new(),
    }
}

pub(super) fn acked_revision(convergence: &Convergence, acked: Generations) -> Option<String> {
    convergence.revision_of(acked.policy).map(ToString::to_string)
}

fn answer(outcome: WaitOutcome, revision: String) -> WaitAnswer {
    WaitAnswer {
        outcome,
        revision,
        superseded_by: None,
        pending: 0,
        proxies: Vec::new(),
        control_planes: Vec::new(),
    }
}

/// The error for a revision that was never active here.
fn unknown(revision: &str, active: Option<&PolicyRevision>) -> ApiError {
    let active = active.map_or_else(
        || "no policy is active yet".to_owned(),
        |active| format!("the active revision is `{active}`"),
    );
    ApiError::NotFound(format!(
        "there is no revision `{revision}`: {active}; `ironmesh policy revisions` lists the stored ones"
    ))
}
