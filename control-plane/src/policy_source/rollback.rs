//! The requests of operators to the policy source, and rollback while policy comes from a folder.
//!
//! The folder stays as it is: a separate process may maintain it. Until it holds a different policy that passes the
//! check, the control plane uses the pinned revision, over restarts too, and reports that everywhere.

use ironmesh_admin::ApiError;
use ironmesh_api::{
    AcceptRemovalRequest, AcceptedRemoval, Applied, ApplyRequest, FindingView, RollbackRequest,
    RolledBack,
};
use ironmesh_catalog::{PolicyPin, PolicyRecord, PolicyRevision, Removals};
use ironmesh_config_language::{Loaded, render};
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{PolicySource, Source};
use ironmesh_catalog::text::chain;

/// A request of an operator to the policy source.
#[derive(Debug)]
pub(crate) enum SourceCommand {
    /// Rolls back.
    RollBack(RollbackRequest, Reply<RolledBack>),
    /// Activates a removal that is held back.
    Accept(AcceptRemovalRequest, Reply<AcceptedRemoval>),
    /// Makes a release and activates it.
    Apply(ApplyRequest, Reply<Applied>),
}

type Reply<T> = oneshot::Sender<Result<T, ApiError>>;

/// The sending side of requests to the policy source.
#[derive(Debug, Clone)]
pub(crate) struct SourceRequests(pub(super) mpsc::Sender<SourceCommand>);

impl SourceRequests {
    /// Rolls back, and waits until that is done. Blocks.
    pub(crate) fn roll_back(&self, request: RollbackRequest) -> Result<RolledBack, ApiError> {
        self.send(|reply| SourceCommand::RollBack(request, reply))
    }

    /// Activates a removal that is held back, and waits until that is done. Blocks.
    pub(crate) fn accept(
        &self,
        request: AcceptRemovalRequest,
    ) -> Result<AcceptedRemoval, ApiError> {
        self.send(|reply| SourceCommand::Accept(request, reply))
    }

    /// Makes a release, and waits until it is active. Blocks.
    pub(crate) fn apply(&self, request: ApplyRequest) -> Result<Applied, ApiError> {
        self.send(|reply| SourceCommand::Apply(request, reply))
    }

    fn send<T>(&self, request: impl FnOnce(Reply<T>) -> SourceCommand) -> Result<T, ApiError> {
        let ended = || ApiError::Internal("the control plane is stopping".to_owned());
        let (reply, replied) = oneshot::channel();
        self.0.blocking_send(request(reply)).map_err(|_| ended())?;
        replied.blocking_recv().map_err(|_| ended())?
    }
}

impl PolicySource {
    /// Carries out a request, and replies. Blocks on the store.
    pub(super) fn answer(&mut self, request: SourceCommand) {
        // The client may be gone; the request is carried out all the same.
        match request {
            SourceCommand::RollBack(request, reply) => drop(reply.send(self.roll_back(&request))),
            SourceCommand::Accept(request, reply) => drop(reply.send(self.accept(&request))),
            SourceCommand::Apply(request, reply) => drop(reply.send(self.apply(request))),
        }
    }

    pub(super) fn roll_back(&mut self, request: &RollbackRequest) -> Result<RolledBack, ApiError> {
        match &self.source {
            Source::Folder(_) => {}
            Source::Etcd(_) => {
                let words = "policy comes from etcd: `ironmesh policy rollback` with settings that name it \
                             pushes the revision there";
                return Err(ApiError::BadRequest(words.to_owned()));
            }
            Source::Releases(source) => {
                return self.select_release(&source.releases.clone(), request);
            }
        }
        self.check_expected(request)?;
        self.keeper.keep();
        let stored = self.store.policies().map_err(|error| ApiError::Internal(chain(&error)))?;
        let kept = find(&request.revision, stored)?;
        let failure = |error| ApiError::Internal(chain(&error));
        let loaded = self.load_kept(&kept.revision).map_err(failure)?;
        let loaded = loaded.ok_or_else(|| unknown(&kept.revision.0))?;
        let Some(specification) = &loaded.specification else {
            return Err(no_longer_valid(&kept.revision, &loaded));
        };
        let active = self.state.borrow().specification.clone();
        let removals = active.map(|active| Removals::between(&active, specification));
        let active_revision = self.state.borrow().view.revision.clone();
        let is_old = active_revision.is_some_and(|revision| *revision == *kept.revision.0);
        let record = PolicyRecord {
            revision: kept.revision,
            at: Timestamp::now(),
            commit: kept.commit,
            by: request.by.clone(),
            message: request.message.clone(),
        };
        // A rollback to the folder's revision only activates it again.
        let is_the_folders = self.source_revision.as_ref() == Some(&record.revision);
        let pin = (!is_the_folders)
            .then(|| PolicyPin { record: record.clone(), folder: self.source_revision.clone() });
        // Before it becomes active, so that a restart does not activate the old revision again.
        self.store.put_policy_pin(pin.as_ref()).map_err(failure)?;
        self.pin = pin;
        self.end_hold();
        self.shrinking = None;
        if !is_old {
            // Errors of the folder stay visible, as after a restart.
            let of_folder = self.state.borrow().view.findings.clone();
            self.activate(specification, &record, &loaded.documents, &loaded.findings);
            if self.pin.is_some() {
                let errors = of_folder.into_iter().filter(|finding| finding.severity == "error");
                self.state.send_modify(|state| state.view.findings.extend(errors));
            }
            self.keeper.keep();
        }
        self.publish_pin();
        let folder = self.pin.as_ref().and_then(|pin| pin.folder.clone());
        let findings = loaded.findings.iter().map(FindingView::from).collect();
        Ok(RolledBack {
            policy: record,
            is_old,
            findings,
            is_folder: is_the_folders,
            folder,
            removals: removals.unwrap_or_default(),
        })
    }
}

impl PolicySource {
    /// Fails unless the active revision is the one that the request expects, if it expects one.
    pub(super) fn check_expected(&self, request: &RollbackRequest) -> Result<(), ApiError> {
        let Some(expected) = &request.expect else { return Ok(()) };
        let active = self.state.borrow().view.active_record.clone();
        let conflict = match active {
            Some(active) if active.revision.0.starts_with(expected.as_str()) => return Ok(()),
            None => "no policy is active".to_owned(),
            Some(PolicyRecord { revision, at, by, message, .. }) => {
                let by = by.map(|by| format!(", by {by}")).unwrap_or_default();
                let why = message.map(|text| format!(" (\"{text}\")")).unwrap_or_default();
                format!(
                    "`{expected}` is not active, but the revision {revision} since {at:.0}{by}{why}"
                )
            }
        };
        Err(ApiError::BadRequest(format!("not rolled back: {conflict}")))
    }
}

/// The one of the stored policies whose revision is or begins with `revision`.
pub(crate) fn find(revision: &str, stored: Vec<PolicyRecord>) -> Result<PolicyRecord, ApiError> {
    let begins = |record: &PolicyRecord| record.revision.0.starts_with(revision);
    let mut found: Vec<_> = stored.into_iter().filter(begins).collect();
    match (found.pop(), found.is_empty()) {
        (Some(only), true) => Ok(only),
        (None, _) => Err(unknown(revision)),
        (Some(last), false) => {
            let all: Vec<_> =
                found.iter().chain([&last]).map(|record| record.revision.to_string()).collect();
            let all = all.join(", ");
            Err(ApiError::BadRequest(format!(
                "several stored revisions begin with `{revision}`: {all}; give more characters"
            )))
        }
    }
}

/// The error of a rollback to a policy that does not pass the check of this version.
pub(super) fn no_longer_valid(revision: &PolicyRevision, loaded: &Loaded) -> ApiError {
    let rendered = render(&loaded.findings, &loaded.documents, false);
    ApiError::BadRequest(format!("{revision} is no longer valid:\n{}", rendered.trim_end()))
}

fn unknown(revision: &str) -> ApiError {
    ApiError::NotFound(format!(
        "no stored policy has a revision that is or begins with `{revision}`: see `ironmesh policy revisions`"
    ))
}
