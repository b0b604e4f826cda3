//! The worker's commits: sending what waits, and settling what was lost.

use ironmesh_etcd::{Condition, Session, SessionError, Write};
use ironmesh_store::{RecordAddress, RecordError, RecordVersion};
use jiff::Timestamp;
use tokio::time::Instant;

use crate::batch::{self, Batch, BatchFault, PreparedCommit, Request};
use crate::head::Head;
use crate::mirror::VerifiedCommit;
use crate::settling::{Outcome, outcome};
use crate::shared::Reply;
use crate::worker::{SessionEnd, Worker};

/// A commit whose answer was lost, and the requests in it.
#[derive(Debug)]
pub(crate) struct Unsettled {
    commit: PreparedCommit,
    requests: Vec<Request<Reply>>,
}

impl Worker {
    /// Sends all waiting commits, in as few transactions as possible, and repairs foreign values.
    pub(crate) async fn commit_waiting(&mut self, session: &mut Session) -> Result<(), SessionEnd> {
        loop {
            self.drop_late();
            let batch = {
                let view = self.shared.view.lock();
                if self.is_outdated_at == Some(view.mirror.head_seen()) {
                    // The watch brings the commit that came first.
                    return Ok(());
                }
                let mut queue = self.shared.queue.lock();
                // While etcd stores nothing, a repair waits for the probe of the next tick.
                let may_repair = self.shared.condition.lock().not_writable.is_none();
                if queue.is_empty() && (!may_repair || view.mirror.foreign().is_empty()) {
                    return Ok(());
                }
                let by = (self.writer.as_str(), Timestamp::now());
                batch::batch(&view.mirror, &self.shared.cipher, &mut queue, by)
            };
            let Batch { accepted, conflicts, commit } = match batch {
                Ok(batch) => batch,
                Err(BatchFault::HeadRemoved) => return self.put_placeholder(session).await,
                Err(BatchFault::MustLoad) => return Ok(()),
                Err(fault @ BatchFault::Cipher) => {
                    self.reject_waiting(&fault.to_string());
                    return Ok(());
                }
            };
            if let Some(commit) = commit {
                match self.send(session, commit, accepted).await {
                    Ok(true) => {}
                    // The next tick tries again whether etcd stores anything.
                    Ok(false) => {
                        self.put_back(conflicts.into_iter().map(|(request, _)| request).collect());
                        return Ok(());
                    }
                    Err(end) => {
                        self.put_back(conflicts.into_iter().map(|(request, _)| request).collect());
                        return Err(end);
                    }
                }
            }
            self.answer_conflicts(session, conflicts).await?;
        }
    }

    /// Answers requests that conflict with the mirror, or that wait for it. If the mirror is outdated, or etcd does not
    /// answer, they wait: the conflict may be with what the caller has read.
    async fn answer_conflicts(
        &mut self,
        session: &mut Session,
        conflicts: Vec<(Request<Reply>, Vec<RecordAddress>)>,
    ) -> Result<(), SessionEnd> {
        if conflicts.is_empty() {
            return Ok(());
        }
        let key = self.shared.view.lock().mirror.layout().head().to_owned();
        let head = match session.get(&key, None).await {
            Ok((head, _)) => head,
            // Nothing is known about the mirror: a new session asks again.
            Err(error) => {
                self.put_back(conflicts.into_iter().map(|(request, _)| request).collect());
                return Err(error.into());
            }
        };
        let (seen, is_removed) = {
            let view = self.shared.view.lock();
            (view.mirror.head_seen(), view.mirror.head_modified().is_none())
        };
        if head.map_or(is_removed, |head| head.modified <= seen) {
            let version = RecordVersion(self.shared.view.lock().mirror.head().revision);
            for (request, records) in conflicts {
                let is_conflict = !records.is_empty();
                let conflict = || RecordError::Conflict(records);
                request.reply.send(if is_conflict { Err(conflict()) } else { Ok(version) });
            }
        } else {
            self.put_back(conflicts.into_iter().map(|(request, _)| request).collect());
            self.is_outdated_at = Some(seen);
        }
        Ok(())
    }

    /// Sends a transaction, and answers its requests. Returns false if etcd has rejected it for another reason than an
    /// outdated head.
    async fn send(
        &mut self,
        session: &mut Session,
        commit: PreparedCommit,
        requests: Vec<Request<Reply>>,
    ) -> Result<bool, SessionEnd> {
        let head = self.shared.view.lock().mirror.layout().head().to_owned();
        let is_last = Condition::Modified { key: head, revision: commit.expected };
        let writes = commit.writes.iter().map(|(key, value)| match value {
            Some(value) => Write::Put { key: key.clone(), value: value.clone(), lease: None },
            None => Write::Delete { key: key.clone() },
        });
        match session.transact(vec![is_last], writes.collect()).await {
            Ok(done) if done.succeeded => {
                let version = RecordVersion(commit.head.revision);
                let PreparedCommit { head, changes, writes, .. } = commit;
                self.shared.apply(VerifiedCommit { head, modified: done.revision, changes });
                self.shared.view.lock().mirror.note_repaired(writes.keys());
                self.shared.note_writable();
                for request in requests {
                    request.reply.send(Ok(version));
                }
                Ok(true)
            }
            Ok(_) => {
                self.is_outdated_at = Some(commit.expected);
                self.put_back(requests);
                Ok(true)
            }
            Err(error @ SessionError::Unavailable(_)) => {
                self.unsettled = Some(Unsettled { commit, requests });
                Err(error.into())
            }
            // Nothing was stored.
            Err(error) => {
                let error = self.cluster.error(error).to_string();
                self.shared.note_not_writable(&error);
                for request in requests {
                    request.reply.send(Err(RecordError::Unavailable(error.clone().into())));
                }
                Ok(false)
            }
        }
    }

    /// Tries whether etcd stores anything again, with a commit without changes, if it did not before.
    pub(crate) async fn probe_writes(&self, session: &mut Session) -> Result<(), SessionEnd> {
        let is_blocked = self.shared.condition.lock().not_writable.is_some();
        if !is_blocked || self.unsettled.is_some() {
            return Ok(());
        }
        match self.send_fence(session).await {
            Err(SessionEnd::Failed(error)) if !matches!(error, SessionError::Unavailable(_)) => {
                self.shared.note_not_writable(&self.cluster.error(error).to_string());
                Ok(())
            }
            sent => sent,
        }
    }

    /// Finds out what became of the commit whose answer was lost. It stays unsettled until the mirror has it, or until it
    /// can never be stored.
    pub(crate) async fn settle(&mut self, session: &mut Session) -> Result<(), SessionEnd> {
        let Some(Unsettled { commit, .. }) = &self.unsettled else { return Ok(()) };
        let (key, is_mirrored, is_current) = {
            let view = self.shared.view.lock();
            let mirror = &view.mirror;
            let is_mirrored = mirror.head().includes(commit.head.commit);
            let is_current = mirror.head_modified() == Some(commit.expected);
            (mirror.layout().head().to_owned(), is_mirrored, is_current)
        };
        let (found, _) = session.get(&key, None).await?;
        let settled = match &found {
            _ if is_mirrored => Outcome::Stored,
            Some(found) => match Head::open(&self.shared.cipher, &key, &found.value) {
                Ok(head) => outcome(commit, &head, found.modified),
                Err(_) => Outcome::Unknown,
            },
            None => Outcome::Unknown,
        };
        match settled {
            Outcome::Stored if is_mirrored => {
                let Some(Unsettled { commit, requests }) = self.unsettled.take() else {
                    return Ok(());
                };
                for request in requests {
                    request.reply.send(Ok(RecordVersion(commit.head.revision)));
                }
            }
            Outcome::Undecided if is_current => return self.send_fence(session).await,
            // The watch brings what the mirror lacks.
            Outcome::Stored | Outcome::Undecided => {}
            Outcome::Lost => {
                let requests = self.unsettled.take().map(|unsettled| unsettled.requests);
                self.put_back(requests.unwrap_or_default());
            }
            Outcome::Unknown => {
                let requests = self.unsettled.take().map(|unsettled| unsettled.requests);
                for request in requests.unwrap_or_default() {
                    let unknown = "it is unknown whether etcd has stored the change";
                    request.reply.send(Err(RecordError::Unavailable(unknown.into())));
                }
            }
        }
        Ok(())
    }

    /// Replaces the head, so that a commit that expects it can never be stored.
    async fn send_fence(&self, session: &mut Session) -> Result<(), SessionEnd> {
        let fence = {
            let view = self.shared.view.lock();
            let by = (self.writer.as_str(), Timestamp::now());
            batch::fence(&view.mirror, &self.shared.cipher, by)
        };
        let Ok(fence) = fence else { return Ok(()) };
        let head = self.shared.view.lock().mirror.layout().head().to_owned();
        let is_last = Condition::Modified { key: head, revision: fence.expected };
        let PreparedCommit { head, changes, writes, .. } = fence;
        let writes = writes
            .into_iter()
            .filter_map(|(key, value)| Some(Write::Put { key, value: value?, lease: None }));
        // If this answer is lost too, the next look at the head tells.
        let done = session.transact(vec![is_last], writes.collect()).await?;
        // Also if a different head was there: etcd has stored that one.
        self.shared.note_writable();
        if done.succeeded {
            self.shared.apply(VerifiedCommit { head, modified: done.revision, changes });
        }
        Ok(())
    }

    /// Gives a removed head a value, whose revision of etcd a commit can expect.
    async fn put_placeholder(&mut self, session: &mut Session) -> Result<(), SessionEnd> {
        let key = self.shared.view.lock().mirror.layout().head().to_owned();
        let is_removed = Condition::Modified { key: key.clone(), revision: 0 };
        let put = Write::Put { key, value: Vec::new(), lease: None };
        session.transact(vec![is_removed], vec![put]).await?;
        // The watch brings its revision.
        self.is_outdated_at = Some(self.shared.view.lock().mirror.head_seen());
        Ok(())
    }

    fn put_back(&self, requests: Vec<Request<Reply>>) {
        let mut queue = self.shared.queue.lock();
        for request in requests.into_iter().rev() {
            queue.push_front(request);
        }
    }

    /// Drops the commits whose callers have given up.
    fn drop_late(&self) {
        let now = Instant::now();
        self.shared.queue.lock().retain(|request| request.reply.deadline > now);
    }
}
