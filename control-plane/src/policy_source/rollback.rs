//! Going back to a policy that was in force before, while policy comes from a folder.
//!
//! The folder stays as it is: somebody else may be keeping it. Until it holds something else that passes,
//! the control plane goes by what was rolled back to, over restarts too, and says so wherever it is asked.

use ironmesh_admin::{
    AcceptRemovalRequest, AcceptedRemoval, FindingView, Refusal, RollbackRequest, RolledBack,
};
use ironmesh_catalog::{PolicyPin, PolicyRecord, Removals};
use ironmesh_config_language::render;
use jiff::Timestamp;
use tokio::sync::{mpsc, oneshot};

use super::{PolicySource, Source};
use ironmesh_catalog::text::chain;

/// What an operator asks of the policy source.
#[derive(Debug)]
pub(crate) enum SourceCommand {
    /// To roll back.
    RollBack(RollbackRequest, Reply<RolledBack>),
    /// To activate a removal that is held back.
    Accept(AcceptRemovalRequest, Reply<AcceptedRemoval>),
}

type Reply<T> = oneshot::Sender<Result<T, Refusal>>;

/// Whom to ask.
#[derive(Debug, Clone)]
pub(crate) struct Rollbacks(pub(super) mpsc::Sender<SourceCommand>);

impl Rollbacks {
    /// Asks, and waits until it is done. Blocks.
    pub(crate) fn ask(&self, request: RollbackRequest) -> Result<RolledBack, Refusal> {
        self.send(|reply| SourceCommand::RollBack(request, reply))
    }

    /// Asks for a removal to be activated, and waits until it is. Blocks.
    pub(crate) fn accept(&self, request: AcceptRemovalRequest) -> Result<AcceptedRemoval, Refusal> {
        self.send(|reply| SourceCommand::Accept(request, reply))
    }

    fn send<T>(&self, request: impl FnOnce(Reply<T>) -> SourceCommand) -> Result<T, Refusal> {
        let ended = || Refusal::Failure("the control plane is stopping".to_owned());
        let (reply, replied) = oneshot::channel();
        self.0.blocking_send(request(reply)).map_err(|_| ended())?;
        replied.blocking_recv().map_err(|_| ended())?
    }
}

impl PolicySource {
    /// Does what is asked, and answers. Blocks on the store.
    pub(super) fn answer(&mut self, request: SourceCommand) {
        // The client may be gone; the request is carried out all the same.
        match request {
            SourceCommand::RollBack(request, reply) => drop(reply.send(self.roll_back(&request))),
            SourceCommand::Accept(request, reply) => drop(reply.send(self.accept(&request))),
        }
    }

    fn roll_back(&mut self, request: &RollbackRequest) -> Result<RolledBack, Refusal> {
        if let Source::Etcd(_) = self.source {
            let words = "policy comes from etcd: `ironmesh policy rollback` with settings that name it \
                         pushes the revision there";
            return Err(Refusal::Request(words.to_owned()));
        }
        self.keeper.keep();
        let kept = self.find(&request.revision)?;
        let failure = |error| Refusal::Failure(chain(&error));
        let loaded = self.load_kept(&kept.revision).map_err(failure)?;
        let loaded = loaded.ok_or_else(|| unknown(&kept.revision.0))?;
        let Some(specification) = &loaded.specification else {
            let drawn = render(&loaded.findings, &loaded.documents, false);
            let words = format!("{} does not pass any more:\n{}", kept.revision, drawn.trim_end());
            return Err(Refusal::Request(words));
        };
        let active = self.state.borrow().specification.clone();
        let removals = active.map(|active| Removals::between(&active, specification));
        let in_force = self.state.borrow().view.revision.clone();
        let is_old = in_force.is_some_and(|revision| *revision == *kept.revision.0);
        let record = PolicyRecord {
            revision: kept.revision,
            at: Timestamp::now(),
            commit: kept.commit,
            by: request.by.clone(),
            message: request.message.clone(),
        };
        // To what the folder holds: then it is in force again.
        let is_the_folders = self.seen.as_ref() == Some(&record.revision);
        let pin = (!is_the_folders)
            .then(|| PolicyPin { record: record.clone(), folder: self.seen.clone() });
        // Before it is in force, so that a restart does not bring back what was rolled back from.
        self.store.put_policy_pin(pin.as_ref()).map_err(failure)?;
        self.pin = pin;
        self.end_hold();
        self.shrinking = None;
        if !is_old {
            // Errors of the folder stay shown, as after a restart.
            let of_folder = self.state.borrow().view.findings.clone();
            self.put_in_force(specification, &record, &loaded.documents, &loaded.findings);
            if self.pin.is_some() {
                let errors = of_folder.into_iter().filter(|finding| finding.severity == "error");
                self.state.send_modify(|state| state.view.findings.extend(errors));
            }
            self.keeper.keep();
        }
        self.tell_of_pin();
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

    /// The kept policy whose revision is or begins with `revision`.
    fn find(&self, revision: &str) -> Result<PolicyRecord, Refusal> {
        let kept = self.store.policies().map_err(|error| Refusal::Failure(chain(&error)))?;
        let begins = |record: &PolicyRecord| record.revision.0.starts_with(revision);
        let mut found: Vec<_> = kept.into_iter().filter(begins).collect();
        match (found.pop(), found.is_empty()) {
            (Some(only), true) => Ok(only),
            (None, _) => Err(unknown(revision)),
            (Some(last), false) => {
                let all: Vec<_> =
                    found.iter().chain([&last]).map(|record| record.revision.to_string()).collect();
                let all = all.join(", ");
                Err(Refusal::Request(format!(
                    "the revisions {all} begin so: give more of the one you mean"
                )))
            }
        }
    }
}

fn unknown(revision: &str) -> Refusal {
    Refusal::Unknown(format!(
        "no policy is kept whose revision is or begins with `{revision}`: see `ironmesh policy revisions`"
    ))
}
