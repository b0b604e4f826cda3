//! The leave table: the proxies to which callers send no new requests, because they leave the mesh or are cordoned.
//!
//! It is the one writer of these marks. Those of leaves are in memory (docs/decisions/0066), each with its end. Those of
//! cordons follow the join records, and nothing else ends them (docs/decisions/0098): a proxy may have both marks. A leave request sets a mark. It ends
//! by a request of the proxy, when a new Envoy is connected and configured, when the proxy is not in use any more, and after
//! [`MARK_LIFETIME`] if an Envoy is connected. A machine that has stopped stays marked. The table never decides what
//! callers get: the reconciler puts the marks into each snapshot.

mod cordons;

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_catalog::{LeavingProxies, ProxyId, Records};
use ironmesh_xds_server::ClientChange;
use jiff::Timestamp;
use parking_lot::Mutex;
use tokio::sync::watch;
use tokio::time::Instant;

/// How long a mark lasts after the latest leave request while an Envoy of the proxy is connected. A supervisor repeats its
/// request every few seconds, so this Envoy is a new one, or its machine has changed its mind.
pub(crate) const MARK_LIFETIME: Duration = Duration::from_secs(60);

/// How long a new Envoy may take to be configured before it gets callers all the same.
const CONFIGURATION_LIMIT: Duration = Duration::from_secs(15);

/// The marks of all proxies that leave.
#[derive(Debug, Default)]
pub(crate) struct LeaveTable {
    marks: Mutex<Marks>,
    /// The number of changes of the marks.
    changes: watch::Sender<u64>,
}

#[derive(Debug, Default)]
struct Marks {
    /// The begins of the leaves.
    since: BTreeMap<ProxyId, Timestamp>,
    details: BTreeMap<ProxyId, Details>,
    /// The same marks by their ends.
    ends: BTreeSet<(Instant, ProxyId)>,
    /// The begins of the marks that have ended last, by proxy. Peers may still have them.
    ended: BTreeMap<ProxyId, Timestamp>,
    /// The proxies whose marks have ended here since [`LeaveTable::take_ended`].
    newly_ended: BTreeSet<ProxyId>,
    cordons: BTreeMap<ProxyId, CordonMark>,
    /// The records by which the cordons were set last.
    records: Records,
    /// All proxies with a mark, each since its first one.
    marked: LeavingProxies,
}

/// The mark of a cordoned proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct CordonMark {
    /// Since when it is cordoned.
    pub(crate) since: Timestamp,
    /// The number of the change that has set the mark.
    pub(crate) change: u64,
}

#[derive(Debug, Clone, Copy)]
struct Details {
    change: u64,
    ends: Instant,
    process_starts: u64,
    /// Whether a new Envoy has connected. The mark ends when it is configured.
    is_back: bool,
    is_connected: bool,
    /// Whether a peer has it from a request. It then ends with that of the peer, not by its time.
    is_adopted: bool,
}

/// The mark of a proxy.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LeaveMark {
    /// Since when the proxy leaves.
    pub(crate) since: Timestamp,
    /// The number of the change that has set the mark.
    pub(crate) change: u64,
    /// Whether the request has set it, and did not find it.
    pub(crate) is_new: bool,
}

impl LeaveTable {
    /// Marks a proxy as leaving, or makes its mark last longer. `process_starts` is the count of its Envoy's starts, and
    /// `is_connected` whether it has a stream.
    pub(crate) fn leave(
        &self,
        id: ProxyId,
        process_starts: u64,
        is_connected: bool,
        now: Timestamp,
        instant: Instant,
    ) -> LeaveMark {
        let mut marks = self.marks.lock();
        let known = marks.details.get(&id).map(|known| known.change);
        let change = known.unwrap_or_else(|| self.next_change());
        let ends = instant + MARK_LIFETIME;
        let details = Details {
            change,
            ends,
            process_starts,
            is_back: false,
            is_connected,
            is_adopted: false,
        };
        marks.set(id, details);
        let since = *marks.since.entry(id).or_insert(now);
        marks.combine(id);
        LeaveMark { since, change, is_new: known.is_none() }
    }

    /// Follows the marks of peers: adopts one that began then, and ends one that a peer has ended. `returned` are the begins
    /// of those that peers have ended. `process_starts` and `is_connected` are as in [`Self::leave`].
    ///
    /// A mark whose peer has vanished becomes one of this table: its machine may be stopped. Then its begin is returned, for
    /// the note of this control plane.
    pub(super) fn follow(
        &self,
        id: ProxyId,
        (leaving_since, returned): (Option<Timestamp>, &BTreeSet<Timestamp>),
        (process_starts, is_connected): (u64, bool),
        now: Instant,
    ) -> Option<Timestamp> {
        let mut marks = self.marks.lock();
        let own = marks.since.get(&id).copied();
        let known = marks.details.get(&id).copied();
        let leaving_since = leaving_since.filter(|since| !returned.contains(since));
        match (own.zip(known), leaving_since) {
            (Some((own, _)), _) if returned.contains(&own) => {
                self.end(&mut marks, id);
            }
            (Some((own, known)), None) if known.is_adopted => {
                let ends = now + MARK_LIFETIME;
                marks.set(id, Details { is_adopted: false, ends, ..known });
                return Some(own);
            }
            // Both control planes got the request: the earlier mark is that of both.
            (Some((own, _)), Some(since)) if since < own => {
                marks.since.insert(id, since);
                marks.combine(id);
            }
            (None, Some(since)) if marks.ended.get(&id) != Some(&since) => {
                let change = self.next_change();
                let (is_back, is_adopted) = (false, true);
                let ends = now + MARK_LIFETIME;
                let details =
                    Details { change, ends, process_starts, is_back, is_connected, is_adopted };
                marks.set(id, details);
                marks.since.insert(id, since);
                marks.combine(id);
            }
            _ => {}
        }
        None
    }

    /// The marks that have ended here since the last call, by the begins of these marks.
    pub(super) fn take_ended(&self) -> Vec<(ProxyId, Timestamp)> {
        let mut marks = self.marks.lock();
        let newly = std::mem::take(&mut marks.newly_ended);
        newly.into_iter().filter_map(|id| Some((id, *marks.ended.get(&id)?))).collect()
    }

    /// All leaves, each with its begin and the number of its change.
    pub(super) fn all(&self) -> Vec<(ProxyId, Timestamp, u64)> {
        let marks = self.marks.lock();
        let all = marks.details.iter();
        all.filter_map(|(id, known)| Some((*id, *marks.since.get(id)?, known.change))).collect()
    }

    /// Ends the mark of a proxy. Returns whether it had one.
    pub(crate) fn rejoin(&self, id: ProxyId) -> bool {
        self.end(&mut self.marks.lock(), id)
    }

    /// Ends the mark of a proxy if a new Envoy has connected while no other one is, and is configured: the proxy was
    /// stopped and is back. Before that, callers would find closed ports. A stream that the same Envoy opens again
    /// does not count, and neither does a hot restart.
    pub(super) fn note_streams(
        &self,
        id: ProxyId,
        change: &ClientChange,
        is_configured: impl FnOnce() -> bool,
        now: Instant,
    ) {
        let mut marks = self.marks.lock();
        let Some(mut known) = marks.details.get(&id).copied() else { return };
        known.is_connected = change.streams > 0;
        if change.process_starts > known.process_starts {
            known.process_starts = change.process_starts;
            if change.streams == 1 {
                known.is_back = true;
                known.ends = known.ends.min(now + CONFIGURATION_LIMIT);
            }
        }
        marks.set(id, known);
        drop(marks);
        if known.is_back && is_configured() {
            self.note_configured(id);
        }
    }

    /// Ends the mark of a proxy whose new Envoy is connected, because it accepts callers now.
    pub(super) fn note_configured(&self, id: ProxyId) {
        let mut marks = self.marks.lock();
        if marks.details.get(&id).is_some_and(|known| known.is_back) {
            tracing::info!(proxy = %id, reason = "a new Envoy is configured", "leave ended");
            self.end(&mut marks, id);
        }
    }

    /// Ends the marks whose time is over, and examines those of disconnected proxies again later, and those of peers.
    pub(super) fn expire(&self, now: Instant, is_connected_elsewhere: impl Fn(ProxyId) -> bool) {
        let mut marks = self.marks.lock();
        while let Some((_, id)) = marks.ends.first().copied().filter(|(ends, _)| *ends <= now) {
            match marks.details.get(&id).copied() {
                Some(known)
                    if (known.is_adopted && !known.is_back)
                        || !(known.is_connected || is_connected_elsewhere(id)) =>
                {
                    marks.set(id, Details { ends: now + MARK_LIFETIME, ..known });
                }
                known => {
                    let reason = if known.is_some_and(|known| known.is_back) {
                        "a new Envoy is not configured after 15 s"
                    } else {
                        "its Envoy is connected, and asks no more to leave"
                    };
                    tracing::warn!(proxy = %id, reason, "leave ended");
                    self.end(&mut marks, id);
                }
            }
        }
    }

    /// Ends the marks of proxies that are not in use any more.
    pub(super) fn retain(&self, is_in_use: impl Fn(ProxyId) -> bool) {
        let mut marks = self.marks.lock();
        let gone: Vec<_> = marks.details.keys().copied().filter(|id| !is_in_use(*id)).collect();
        for id in gone {
            self.end(&mut marks, id);
        }
        marks.ended.retain(|id, _| is_in_use(*id));
    }

    /// When the first mark ends by its time.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.marks.lock().ends.first().map(|(ends, _)| *ends)
    }

    /// The proxies with a mark, and the number of the newest change.
    pub(super) fn current(&self) -> (LeavingProxies, u64) {
        let marks = self.marks.lock();
        (marks.marked.clone(), *self.changes.borrow())
    }

    /// Since when a proxy leaves; none if it does not.
    pub(crate) fn since(&self, id: ProxyId) -> Option<Timestamp> {
        self.marks.lock().since.get(&id).copied()
    }

    /// The number of the newest change, for a task that waits for the next.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn end(&self, marks: &mut Marks, id: ProxyId) -> bool {
        let Some(known) = marks.details.remove(&id) else { return false };
        marks.ends.remove(&(known.ends, id));
        if let Some(since) = marks.since.remove(&id) {
            marks.ended.insert(id, since);
            marks.newly_ended.insert(id);
        }
        marks.combine(id);
        self.next_change();
        true
    }

    /// The number of a further change. Called with the marks locked.
    fn next_change(&self) -> u64 {
        self.changes.send_modify(|changes| *changes += 1);
        *self.changes.borrow()
    }
}

impl Marks {
    /// Shows the marks of a proxy as one.
    fn combine(&mut self, id: ProxyId) {
        let cordoned = self.cordons.get(&id).map(|cordon| cordon.since);
        match self.since.get(&id).copied().into_iter().chain(cordoned).min() {
            Some(first) => self.marked.insert(id, first),
            None => self.marked.remove(&id),
        };
    }

    fn set(&mut self, id: ProxyId, details: Details) {
        if let Some(known) = self.details.insert(id, details) {
            self.ends.remove(&(known.ends, id));
        }
        self.ends.insert((details.ends, id));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> ProxyId {
        ProxyId(Uuid::from_u128(number))
    }

    fn news(streams: usize, process_starts: u64) -> ClientChange {
        ClientChange {
            streams,
            node: Arc::default(),
            process_starts,
            nacks: BTreeMap::new(),
            has_set: false,
            was_synced: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn leave_at_a_peer_is_adopted_until_one_of_both_ends_it() {
        let (table, begin) = (LeaveTable::default(), Instant::now());
        let second = |second| Timestamp::from_second(second).unwrap();
        let none = BTreeSet::new();
        let follow = |leaving, returned: &BTreeSet<_>| {
            table.follow(id(1), (leaving, returned), (1, true), begin);
            table.since(id(1))
        };
        assert_eq!(follow(Some(second(1)), &none), Some(second(1)));
        // The peer knows whether its request is repeated.
        table.expire(begin + MARK_LIFETIME * 9, |_| true);
        assert_eq!(table.since(id(1)), Some(second(1)));
        // The peer has ended it. What the note of another peer still has is not adopted again.
        assert_eq!(follow(None, &[second(1)].into()), None);
        assert_eq!(table.take_ended(), [(id(1), second(1))]);
        assert_eq!(follow(Some(second(1)), &none), None);
        // This control plane ends one: the peer's is not adopted again.
        assert_eq!(follow(Some(second(2)), &none), Some(second(2)));
        table.note_streams(id(1), &news(1, 2), || true, begin);
        assert_eq!(table.take_ended(), [(id(1), second(2))]);
        assert_eq!(follow(Some(second(2)), &none), None);
        // Both got the request: the earlier one counts, and a peer ends it.
        table.leave(id(1), 2, true, second(4), begin);
        assert_eq!(follow(Some(second(3)), &none), Some(second(3)));
        assert_eq!(table.all().len(), 1);
        assert_eq!(follow(None, &[second(3)].into()), None);
    }

    #[tokio::test(start_paused = true)]
    async fn leave_of_a_vanished_peer_stays_for_a_stopped_machine() {
        let (table, begin) = (LeaveTable::default(), Instant::now());
        let (since, none) = (Timestamp::UNIX_EPOCH, BTreeSet::new());
        let follow = |leaving| table.follow(id(1), (leaving, &none), (0, false), begin);
        assert_eq!(follow(Some(since)), None);
        assert_eq!(follow(None), Some(since), "this control plane notes it now");
        table.expire(begin + MARK_LIFETIME * 3, |_| false);
        assert_eq!(table.since(id(1)), Some(since), "the machine is stopped");
        // The peer is back, with the same mark.
        assert_eq!(follow(Some(since)), None);
        table.expire(begin + MARK_LIFETIME * 9, |_| true);
        assert_eq!(table.since(id(1)), None, "its Envoy is connected, and repeats no request");
    }

    #[tokio::test(start_paused = true)]
    async fn repeated_leave_keeps_its_change_and_lasts_longer() {
        let (table, now) = (LeaveTable::default(), Timestamp::now());
        let begin = Instant::now();
        let first = table.leave(id(1), 0, true, now, begin);
        assert!(first.is_new && first.since == now);
        let later = begin + MARK_LIFETIME / 2;
        let again = table.leave(id(1), 0, true, Timestamp::MAX, later);
        assert_eq!(again, LeaveMark { is_new: false, ..first });
        assert_eq!(*table.changes().borrow(), 1);
        table.expire(begin + MARK_LIFETIME, |_| false);
        assert_eq!(table.since(id(1)), Some(now));
        assert_eq!(table.deadline(), Some(later + MARK_LIFETIME));
        table.expire(later + MARK_LIFETIME, |_| false);
        assert_eq!((table.since(id(1)), table.deadline()), (None, None));
        assert_eq!(*table.changes().borrow(), 2);
        assert!(!table.rejoin(id(1)));
    }

    #[tokio::test(start_paused = true)]
    async fn only_a_new_envoy_without_another_one_ends_the_mark() {
        let (table, now) = (LeaveTable::default(), Instant::now());
        let marked = |table: &LeaveTable| table.since(id(1)).is_some();
        table.leave(id(1), 3, true, Timestamp::now(), now);
        let note = |streams, starts, is_synced| {
            table.note_streams(id(1), &news(streams, starts), || is_synced, now);
        };
        note(0, 3, true);
        note(1, 3, true);
        assert!(marked(&table), "the same Envoy reconnects");
        note(2, 4, true);
        note(1, 4, true);
        assert!(marked(&table), "a hot restart");
        note(0, 4, true);
        note(1, 5, false);
        assert!(marked(&table), "a new Envoy without resources");
        note(1, 5, true);
        assert!(!marked(&table), "a new Envoy");

        // One that NACKs something gets callers after a while.
        table.leave(id(1), 5, true, Timestamp::now(), now);
        note(1, 6, false);
        table.expire(now + CONFIGURATION_LIMIT, |_| false);
        assert!(!marked(&table));
    }

    #[test]
    fn proxies_that_are_not_in_use_are_not_leaving() {
        let table = LeaveTable::default();
        for number in 1..=3 {
            table.leave(id(number), 0, true, Timestamp::now(), Instant::now());
        }
        table.retain(|one| one != id(2));
        let (leaving, changes) = table.current();
        assert_eq!(leaving.keys().copied().collect::<Vec<_>>(), [id(1), id(3)]);
        assert_eq!(changes, 4);
        assert!(table.rejoin(id(1)) && !table.rejoin(id(1)));
    }

    #[test]
    fn stopped_machine_stays_marked_until_its_envoy_is_back() {
        let (table, begin) = (LeaveTable::default(), Instant::now());
        table.leave(id(1), 3, true, Timestamp::now(), begin);
        table.note_streams(id(1), &news(0, 3), || true, begin);
        for times in 1..=20 {
            table.expire(begin + MARK_LIFETIME * times, |_| false);
        }
        assert!(table.since(id(1)).is_some());
        // The new Envoy connects while the lost stream of the old one still counts.
        table.note_streams(id(1), &news(2, 4), || true, begin + MARK_LIFETIME * 20);
        table.expire(begin + MARK_LIFETIME * 22, |_| false);
        assert_eq!(table.since(id(1)), None);
    }
}
