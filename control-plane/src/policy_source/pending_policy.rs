//! Large removals from the policy folder. They are held back for a while, because an unmounted volume, a wrong
//! `rsync --delete` and an unfinished copy look like an intended removal (invariant 1, docs/decisions/0045).
//!
//! Only the folder is held back. A push to etcd, a rollback and an acceptance are deliberate.

use std::sync::Arc;

use ironmesh_admin::ApiError;
use ironmesh_api::{AcceptRemovalRequest, AcceptedRemoval, HeldRemoval};
use ironmesh_catalog::{Finding, MeshSpecification, PolicyRecord, Removals, codes};
use ironmesh_config_language::Loaded;
use jiff::Timestamp;
use tokio::time::Instant;

use super::{PolicySource, new_record, show};

/// The longest time that a growing removal is held back, in multiples of `removal_hold`.
const LONGEST: u32 = 10;

/// A change of the policy folder that is not yet active.
#[derive(Debug)]
pub(super) struct PendingPolicy {
    loaded: Loaded,
    specification: Arc<MeshSpecification>,
    removals: Removals,
    since: Timestamp,
    until: Timestamp,
    /// The time of `until` by the steady clock.
    due: Instant,
    /// The latest `due`, however long the removal grows.
    latest: Instant,
}

impl PendingPolicy {
    /// When [`PolicySource::activate_after_hold`] is due.
    pub(super) fn due(&self) -> Instant {
        self.due
    }
}

/// A policy from before several removals that followed each other closely.
#[derive(Debug)]
pub(super) struct Shrinking {
    /// The policy before the first of them.
    before: Arc<MeshSpecification>,
    /// When the last of them became active.
    last: Instant,
}

impl PolicySource {
    /// Holds `specification` back if it removes too much at once. Without an active policy, which is so at the
    /// start, the last good policy of the store becomes active in its place.
    pub(super) fn hold_back(
        &mut self,
        loaded: &Loaded,
        specification: &Arc<MeshSpecification>,
    ) -> bool {
        let is_too_much = |before: &Arc<MeshSpecification>| {
            let shrinks_by = before.object_count().saturating_sub(specification.object_count());
            let removals =
                (shrinks_by >= Removals::LEAST).then(|| Removals::between(before, specification));
            removals.filter(Removals::are_large)
        };
        let hold = self.removal_hold();
        if hold.is_zero() {
            return false;
        }
        let active = self.state.borrow().specification.clone();
        let removals = match &active {
            Some(active) => {
                let shrinking = self.shrinking.take_if(|known| known.last.elapsed() >= hold);
                drop(shrinking);
                is_too_much(self.shrinking.as_ref().map_or(active, |known| &known.before))
            }
            None => match self.last_good() {
                Some(last) if last.revision != loaded.revision => {
                    let removals = last.specification.as_ref().and_then(is_too_much);
                    if removals.is_some() {
                        self.serve_last_good(last);
                    }
                    removals
                }
                _ => None,
            },
        };
        let Some(removals) = removals else { return false };
        self.hold(loaded.clone(), Arc::clone(specification), removals);
        true
    }

    /// Publishes that a change is held back. A change that removes more restarts the time, for a slow removal is not
    /// over; any other change does not, and nothing prolongs it beyond [`LONGEST`] times the hold.
    fn hold(&mut self, loaded: Loaded, specification: Arc<MeshSpecification>, removals: Removals) {
        let held = self.held.take();
        let since = held.as_ref().map_or_else(Timestamp::now, |held| held.since);
        let grows = |held: &PendingPolicy| removals.removed.len() > held.removals.removed.len();
        let (until, due, latest) = match held {
            Some(held) if !grows(&held) => (held.until, held.due, held.latest),
            held => {
                let (now, hold) = (Instant::now(), self.removal_hold());
                let latest = held.map_or(now + hold * LONGEST, |held| held.latest);
                let due = latest.min(now + hold);
                let until = Timestamp::now().checked_add(due.saturating_duration_since(now));
                (until.unwrap_or(Timestamp::MAX), due, latest)
            }
        };
        let source = self.source.name();
        let message = format!("the removal of {removals} is held back until {until:.0}");
        let finding = Finding::warning(codes::REMOVAL_HELD, None, message).help(format!(
            "if it is intended, `ironmesh policy accept` activates it now; if not, restore the files in \
             `{source}`"
        ));
        tracing::warn!(
            revision = %loaded.revision,
            removed = removals.removed.len(),
            of = removals.before,
            until = %format_args!("{until:.0}"),
            action = "`ironmesh policy accept` activates it now; to undo it, restore the files",
            "a removal from the policy folder is held back"
        );
        self.state.send_modify(|state| {
            state.view.stale_since.get_or_insert(since);
            show(&mut state.view, &[finding], &[]);
            state.view.held = Some(HeldRemoval {
                revision: loaded.revision.to_string(),
                since,
                until,
                removed: removals.removed.len(),
                of: removals.before,
            });
        });
        self.held =
            Some(PendingPolicy { loaded, specification, removals, since, until, due, latest });
    }

    /// Forgets the change that is held back: the folder holds a different one, or another policy is active.
    pub(super) fn end_hold(&mut self) {
        if self.held.take().is_some() {
            self.state.send_modify(|state| state.view.held = None);
        }
    }

    /// Activates the change that is held back when its time is over.
    pub(super) fn activate_after_hold(&mut self) {
        if let Some(removals) = self.activate_held(None) {
            self.note_hold_end();
            tracing::warn!(%removals, "a removal from the policy folder is no longer held back");
        }
    }

    /// Activates the change that is held back for an operator. Blocks on the store.
    pub(super) fn accept(
        &mut self,
        request: &AcceptRemovalRequest,
    ) -> Result<AcceptedRemoval, ApiError> {
        let Some(held) = &self.held else {
            return Err(ApiError::BadRequest(
                "no removal from the policy folder is held back".to_owned(),
            ));
        };
        let revision = &held.loaded.revision;
        if let Some(expected) = &request.revision
            && !revision.0.starts_with(&**expected)
        {
            return Err(ApiError::BadRequest(format!(
                "the removal that is held back is revision {revision}, not `{expected}`: look at it again"
            )));
        }
        let by = request.by.clone();
        let removals = self.activate_held(by.clone());
        let policy = self.state.borrow().view.active_record.clone();
        let (Some(removals), Some(policy)) = (removals, policy) else {
            return Err(ApiError::Internal("the removal could not be activated".to_owned()));
        };
        tracing::info!(by, %removals, "a removal from the policy folder is accepted");
        self.keeper.keep();
        Ok(AcceptedRemoval { policy, removals })
    }

    fn activate_held(&mut self, by: Option<String>) -> Option<Removals> {
        let PendingPolicy { loaded, specification, removals, .. } = self.held.take()?;
        self.shrinking = None;
        self.end_pin();
        let record = PolicyRecord { by, ..new_record(&loaded.revision) };
        self.activate(&specification, &record, &loaded.documents, &loaded.findings);
        self.commits.search(loaded.revision);
        Some(removals)
    }

    /// Remembers the policy before a series of removals: `rsync --delete` removes file by file.
    pub(super) fn follow_removals(&mut self, specification: &MeshSpecification) {
        let Some(active) = self.state.borrow().specification.clone() else { return };
        if specification.object_count() < active.object_count() {
            let before = self.shrinking.take().map_or(active, |known| known.before);
            self.shrinking = Some(Shrinking { before, last: Instant::now() });
        }
    }
}

#[cfg(test)]
mod tests;
