//! The worker: the one task that speaks with etcd. It follows the watch, sends commits, and settles lost ones.
//!
//! It has a thread and a runtime of its own, so that callers who block for a commit never keep it from running.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use ironmesh_etcd::{Cluster, EtcdError, EventWatch, KeyEvent, Session, SessionError, WatchNews};
use ironmesh_store::RecordError;
use jiff::Timestamp;
use tokio::time::{Instant, MissedTickBehavior, interval, sleep, timeout};

use crate::commits::Unsettled;
use crate::mirror::{Mirror, Received};
use crate::shared::Shared;

/// How often the head is read, which reveals a watch that is silent.
const HEAD_INTERVAL: Duration = Duration::from_secs(2);

/// The pause after a failed connection, and the first one between attempts to load a state that cannot be used.
const PAUSE: Duration = Duration::from_millis(500);

/// The longest pause between attempts to load a state that cannot be used. Each attempt reads everything.
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// How many keys are read at once.
pub(crate) const PAGE: i64 = 500;

/// The one task that speaks with etcd.
pub(crate) struct Worker {
    pub(crate) shared: Arc<Shared>,
    pub(crate) cluster: Cluster,
    /// The host name of this control plane, for operators.
    pub(crate) writer: String,
    /// The revision of etcd up to which all events are in the mirror.
    pub(crate) seen: i64,
    /// A commit whose answer was lost.
    pub(crate) unsettled: Option<Unsettled>,
    /// The revision of the head at which a commit failed, because the head had been written before it.
    pub(crate) is_outdated_at: Option<i64>,
    /// The failures since etcd was last usable.
    failures: usize,
    /// When a head was first read that the watch has not reported.
    unreported_since: Option<Instant>,
    /// The pause after the next attempt to load a state that cannot be used.
    pause: Duration,
}

/// Why a session is over.
pub(crate) enum SessionEnd {
    /// The store was dropped.
    Stopped,
    /// Everything was loaded, so the watch begins again.
    Loaded,
    /// The endpoint cannot be used.
    Failed(SessionError),
}

impl From<SessionError> for SessionEnd {
    fn from(error: SessionError) -> Self {
        Self::Failed(error)
    }
}

impl Worker {
    pub(crate) fn new(shared: Arc<Shared>, cluster: Cluster, writer: String, seen: i64) -> Self {
        let (unsettled, is_outdated_at, failures, unreported_since) = Default::default();
        Self {
            shared,
            cluster,
            writer,
            seen,
            unsettled,
            is_outdated_at,
            failures,
            unreported_since,
            pause: PAUSE,
        }
    }

    /// Works until the store is dropped.
    pub(crate) async fn run(mut self) {
        let mut session: Option<Session> = None;
        while !self.has_ended() {
            let opened = match session.take() {
                Some(session) => Ok(session),
                None => self.cluster.session().await,
            };
            let problem = match opened {
                Err(error) => error,
                Ok(mut open) => match self.serve(&mut open).await {
                    SessionEnd::Stopped => return,
                    SessionEnd::Loaded => {
                        session = Some(open);
                        continue;
                    }
                    SessionEnd::Failed(error) => self.cluster.error(error),
                },
            };
            self.note_failure(&problem);
            self.cluster.rotate();
            sleep(PAUSE).await;
        }
    }

    async fn serve(&mut self, session: &mut Session) -> SessionEnd {
        let end = self.follow(session).await;
        end.err().unwrap_or(SessionEnd::Stopped)
    }

    async fn follow(&mut self, session: &mut Session) -> Result<(), SessionEnd> {
        if self.shared.view.lock().mirror.must_load() {
            return self.load(session).await;
        }
        let state = self.shared.view.lock().mirror.layout().state().to_owned();
        let mut watch = session.watch_prefix(&state, self.seen + 1).await?;
        // Whatever it waited for, the new watch brings, or a commit finds out again.
        self.is_outdated_at = None;
        let mut ticks = interval(HEAD_INTERVAL);
        ticks.set_missed_tick_behavior(MissedTickBehavior::Delay);
        self.compare_head(session).await?;
        self.failures = 0;
        while !self.has_ended() {
            if self.shared.view.lock().mirror.must_load() {
                return self.load(session).await;
            }
            self.settle(session).await?;
            if self.unsettled.is_none() {
                self.commit_waiting(session).await?;
            }
            tokio::select! {
                news = watch.next() => self.receive(news)?,
                () = self.shared.wake.notified() => {}
                _ = ticks.tick() => {
                    self.compare_head(session).await?;
                    self.probe_writes(session).await?;
                }
            }
            self.receive_rest(&mut watch).await?;
        }
        Ok(())
    }

    /// Receives what has arrived already, so that a commit is not made on an outdated mirror.
    async fn receive_rest(&mut self, watch: &mut EventWatch) -> Result<(), SessionEnd> {
        loop {
            tokio::select! {
                biased;
                news = watch.next() => self.receive(news)?,
                () = std::future::ready(()) => return Ok(()),
            }
        }
    }

    fn receive(&mut self, news: WatchNews) -> Result<(), SessionEnd> {
        match news {
            WatchNews::Events(events) => self.receive_events(&events),
            WatchNews::Progress(revision) => self.seen = self.seen.max(revision),
            WatchNews::Compacted => self.shared.view.lock().mirror.demand_load(),
            WatchNews::Ended(reason) => {
                return Err(
                    SessionError::Unavailable(format!("the watch has ended: {reason}")).into()
                );
            }
        }
        Ok(())
    }

    fn receive_events(&mut self, events: &[KeyEvent]) {
        let shared = &self.shared;
        let received = shared.view.lock().mirror.receive(&shared.cipher, events);
        match received {
            Received::Commit(commit) => shared.apply(commit),
            Received::Older { found } => shared.condition.lock().rolled_back_to = Some(found),
            Received::Known | Received::Foreign(_) | Received::Gap => {}
        }
        self.seen = self.seen.max(events.iter().map(|event| event.modified).max().unwrap_or(0));
    }

    /// Reads the head, which proves that etcd answers with a quorum, and that the watch is not silent.
    async fn compare_head(&mut self, session: &mut Session) -> Result<(), SessionEnd> {
        let key = self.shared.view.lock().mirror.layout().head().to_owned();
        let (head, revision) = session.get(&key, None).await?;
        self.shared.condition.lock().unavailable = None;
        let mut view = self.shared.view.lock();
        let seen = view.mirror.head_seen();
        // A removal of the head is an event after it.
        let modified = head.map_or(seen, |head| head.modified);
        if modified < seen || revision < self.seen {
            // etcd was restored: its revisions begin again.
            view.mirror.demand_load();
        }
        drop(view);
        if modified <= seen {
            self.unreported_since = None;
            return Ok(());
        }
        let since = *self.unreported_since.get_or_insert_with(Instant::now);
        if since.elapsed() < HEAD_INTERVAL {
            return Ok(());
        }
        self.unreported_since = None;
        Err(SessionError::Unavailable("the watch reports nothing any more".to_owned()).into())
    }

    /// Loads everything again. If what etcd has is not authentic or is older, the mirror stays, and nothing is stored.
    async fn load(&mut self, session: &mut Session) -> Result<(), SessionEnd> {
        let (layout, known) = {
            let view = self.shared.view.lock();
            (view.mirror.layout().clone(), view.mirror.head().clone())
        };
        let (stored, revision) = session.list_in_pages(layout.state(), PAGE).await?;
        let is_resumed = {
            let mut view = self.shared.view.lock();
            view.mirror.resume(&self.shared.cipher, &stored)
        };
        let (damage, rolled_back_to) = if is_resumed {
            (None, None)
        } else {
            let is_rolled_back = self.shared.condition.lock().rolled_back_to.is_some();
            match Mirror::load(&self.shared.cipher, layout, stored) {
                Ok(mirror) if mirror.head().follows(&known, is_rolled_back) => {
                    self.shared.view.lock().replace(mirror);
                    (None, None)
                }
                Ok(mirror) => (None, Some(mirror.head().revision)),
                Err(fault) => (Some(fault.to_string()), None),
            }
        };
        let blocked = {
            let mut condition = self.shared.condition.lock();
            (condition.damage, condition.rolled_back_to) = (damage, rolled_back_to);
            // etcd has answered.
            condition.unavailable = None;
            condition.blocked()
        };
        let Some(problem) = blocked else {
            self.seen = revision;
            self.pause = PAUSE;
            return Err(SessionEnd::Loaded);
        };
        self.reject_waiting(&problem);
        let pause = self.pause;
        self.pause = (pause * 2).min(LONGEST_PAUSE);
        // A commit that comes meanwhile is answered by the condition; the end of the store ends the pause.
        let _ = timeout(pause, self.ended()).await;
        Err(SessionEnd::Loaded)
    }

    /// Waits for the end of the store.
    async fn ended(&self) {
        while !self.has_ended() {
            self.shared.wake.notified().await;
        }
    }

    /// Answers all waiting commits, which were not sent.
    pub(crate) fn reject_waiting(&self, problem: &str) {
        let waiting = std::mem::take(&mut *self.shared.queue.lock());
        for request in waiting {
            request.reply.send(Err(RecordError::Unavailable(problem.to_owned().into())));
        }
    }

    /// Reports an outage and answers waiting commits, after each endpoint was tried once more: one that was lost is normal.
    fn note_failure(&mut self, problem: &EtcdError) {
        self.failures += 1;
        if self.failures <= self.cluster.endpoints().len() {
            return;
        }
        let problem = problem.to_string();
        let mut condition = self.shared.condition.lock();
        match &mut condition.unavailable {
            Some((_, last)) => last.clone_from(&problem),
            none => *none = Some((Timestamp::now(), problem.clone())),
        }
        drop(condition);
        self.reject_waiting(&problem);
    }

    fn has_ended(&self) -> bool {
        self.shared.has_ended.load(Ordering::SeqCst)
    }
}
