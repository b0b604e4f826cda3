//! The marks of cordoned proxies: they follow the join records, and nothing else sets or ends them.

use imbl::ordmap::DiffItem;
use ironmesh_catalog::{ProxyId, Records};

use super::{CordonMark, LeaveTable};

impl LeaveTable {
    /// Sets the marks of the proxies that are cordoned by these records, and ends those of the others. Returns the proxies
    /// whose marks it has ended. The cost follows the records that have changed.
    pub(crate) fn follow_records(&self, records: &Records) -> Vec<ProxyId> {
        let (mut marks, mut ended) = (self.marks.lock(), Vec::new());
        if marks.records.ptr_eq(records) {
            return ended;
        }
        let before = std::mem::replace(&mut marks.records, records.clone());
        for item in before.diff(records) {
            let (id, cordon) = match item {
                DiffItem::Add(id, new) | DiffItem::Update { new: (id, new), .. } => {
                    (*id, new.cordon.as_ref())
                }
                DiffItem::Remove(id, _) => (*id, None),
            };
            let known = marks.cordons.get(&id).map(|known| known.since);
            match cordon {
                Some(cordon) if known == Some(cordon.since) => continue,
                Some(cordon) => {
                    let mark = CordonMark { since: cordon.since, change: self.next_change() };
                    marks.cordons.insert(id, mark);
                }
                None if known.is_none() => continue,
                None => {
                    marks.cordons.remove(&id);
                    self.next_change();
                    ended.push(id);
                }
            }
            marks.combine(id);
        }
        ended
    }

    /// The mark of a cordoned proxy; none before the reconciler has followed its record.
    pub(crate) fn cordon(&self, id: ProxyId) -> Option<CordonMark> {
        self.marks.lock().cordons.get(&id).copied()
    }

    /// The marks of all cordoned proxies.
    pub(crate) fn cordons(&self) -> Vec<(ProxyId, CordonMark)> {
        self.marks.lock().cordons.iter().map(|(id, mark)| (*id, *mark)).collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::{BTreeMap, BTreeSet};
    use std::net::SocketAddr;
    use std::sync::Arc;

    use ironmesh_catalog::{Cordon, CordonMode, JoinRecord};
    use ironmesh_xds_server::ClientChange;
    use jiff::Timestamp;
    use proptest::collection::vec;
    use proptest::prelude::*;
    use tokio::time::Instant;
    use uuid::Uuid;

    use super::*;
    use crate::leave_table::MARK_LIFETIME;

    fn id(number: u128) -> ProxyId {
        ProxyId(Uuid::from_u128(number))
    }

    fn second(second: i64) -> Timestamp {
        Timestamp::from_second(second).unwrap()
    }

    /// The record of proxy number `number`, cordoned since then.
    fn record(number: u8, cordoned: Option<i64>) -> Arc<JoinRecord> {
        let address = SocketAddr::from(([10, 0, 0, number], 15003));
        let services = vec!["store".parse().unwrap()];
        let (now, end) = (Timestamp::UNIX_EPOCH, Timestamp::MAX);
        let cordon = cordoned.and_then(|since| {
            Cordon::requested(None, CordonMode::Cordon, None, None, second(since))
        });
        let record = JoinRecord::new(id(number.into()), services, address, now, end);
        Arc::new(JoinRecord { cordon, ..record })
    }

    fn records(all: impl IntoIterator<Item = Arc<JoinRecord>>) -> Records {
        all.into_iter().map(|record| (record.id, record)).collect()
    }

    fn new_envoy(process_starts: u64) -> ClientChange {
        ClientChange {
            streams: 1,
            node: Arc::default(),
            process_starts,
            nacks: BTreeMap::new(),
            has_set: false,
            was_synced: false,
        }
    }

    #[tokio::test(start_paused = true)]
    async fn cordon_outlives_time_new_envoys_rejoins_and_peers() {
        let (table, begin) = (LeaveTable::default(), Instant::now());
        table.follow_records(&records([record(1, Some(5)), record(2, None)]));
        let marked = || table.current().0.into_iter().collect::<Vec<_>>();
        assert_eq!(marked(), [(id(1), second(5))]);
        table.note_streams(id(1), &new_envoy(2), || true, begin);
        table.note_configured(id(1));
        table.expire(begin + MARK_LIFETIME * 9, |_| true);
        assert!(!table.rejoin(id(1)), "it does not leave");
        let returned = BTreeSet::from([second(5)]);
        table.follow(id(1), (None, &returned), (2, true), begin);
        table.retain(|_| false);
        assert_eq!(marked(), [(id(1), second(5))]);
        assert_eq!((table.since(id(1)), table.deadline()), (None, None));
        assert!(table.take_ended().is_empty());
    }

    #[tokio::test(start_paused = true)]
    async fn end_of_one_mark_keeps_the_other() {
        let (table, begin) = (LeaveTable::default(), Instant::now());
        let since = || table.current().0.get(&id(1)).copied();
        table.leave(id(1), 0, true, second(3), begin);
        table.follow_records(&records([record(1, Some(5))]));
        assert_eq!((since(), table.since(id(1))), (Some(second(3)), Some(second(3))));
        assert!(table.rejoin(id(1)));
        assert_eq!((since(), table.since(id(1))), (Some(second(5)), None));
        table.leave(id(1), 0, true, second(7), begin);
        table.follow_records(&records([record(1, None)]));
        assert_eq!((since(), table.cordon(id(1))), (Some(second(7)), None));
        table.expire(begin + MARK_LIFETIME, |_| false);
        assert_eq!(since(), None);
    }

    #[tokio::test(start_paused = true)]
    async fn change_number_rises_only_when_a_cordon_begins_or_ends() {
        let table = LeaveTable::default();
        let change = |all: Records| {
            table.follow_records(&all);
            table.current().1
        };
        assert_eq!(change(records([record(1, None)])), 0);
        let cordoned = records([record(1, Some(1))]);
        assert_eq!(change(cordoned.clone()), 1);
        assert_eq!(table.cordon(id(1)), Some(CordonMark { since: second(1), change: 1 }));
        assert_eq!(change(cordoned), 1);
        assert_eq!(change(records([record(1, Some(1))])), 1, "another change of the record");
        assert_eq!(change(records([record(1, Some(2))])), 2, "returned and cordoned again");
        assert_eq!(change(records([])), 3, "revoked");
        assert_eq!(table.cordons(), []);
    }

    /// What happens to a proxy, in the property below.
    #[derive(Debug, Clone, Copy)]
    enum Step {
        Cordon(i64),
        Uncordon,
        Leave,
        Rejoin,
        NewEnvoy,
        PeerLeaves(i64),
        PeerReturns,
        Expire,
        Restart,
    }

    fn step() -> impl Strategy<Value = Step> {
        prop_oneof![
            (1..20_i64).prop_map(Step::Cordon),
            Just(Step::Uncordon),
            Just(Step::Leave),
            Just(Step::Rejoin),
            Just(Step::NewEnvoy),
            (1..20_i64).prop_map(Step::PeerLeaves),
            Just(Step::PeerReturns),
            Just(Step::Expire),
            Just(Step::Restart),
        ]
    }

    proptest! {
        // Whatever happens, callers avoid a proxy for as long as it is cordoned by its record or leaves.
        #[test]
        fn proxy_is_marked_while_it_is_cordoned_or_leaves(steps in vec(step(), 1..40)) {
            let (mut table, mut now) = (LeaveTable::default(), Instant::now());
            let (mut cordoned, mut starts) = (None, 1);
            let follow = |table: &LeaveTable, cordoned| {
                table.follow_records(&records([record(1, cordoned), record(2, None)]));
            };
            for step in steps {
                let changes = table.current().1;
                let before = table.cordon(id(1));
                match step {
                    Step::Cordon(at) => cordoned = cordoned.or(Some(at)),
                    Step::Uncordon => cordoned = None,
                    Step::Leave => {
                        table.leave(id(1), starts, true, second(30), now);
                    }
                    Step::Rejoin => {
                        table.rejoin(id(1));
                    }
                    Step::NewEnvoy => {
                        starts += 1;
                        table.note_streams(id(1), &new_envoy(starts), || true, now);
                    }
                    Step::PeerLeaves(at) => {
                        let leaving = (Some(second(at)), &BTreeSet::new());
                        table.follow(id(1), leaving, (starts, true), now);
                    }
                    Step::PeerReturns => {
                        let returned = table.since(id(1)).into_iter().collect();
                        table.follow(id(1), (None, &returned), (starts, true), now);
                    }
                    Step::Expire => {
                        now += MARK_LIFETIME;
                        table.expire(now, |_| true);
                    }
                    Step::Restart => table = LeaveTable::default(),
                }
                follow(&table, cordoned);
                let (marked, newest) = table.current();
                let leaves = table.since(id(1));
                let first = leaves.into_iter().chain(cordoned.map(second)).min();
                prop_assert_eq!(marked.get(&id(1)).copied(), first);
                prop_assert_eq!(marked.len(), usize::from(first.is_some()));
                let mark = table.cordon(id(1));
                prop_assert_eq!(mark.map(|mark| mark.since), cordoned.map(second));
                prop_assert!(mark.is_none_or(|mark| mark.change <= newest));
                // Only its begin and its end give it a number.
                let is_begun = before.map(|mark| mark.since) != mark.map(|mark| mark.since);
                if !is_begun && !matches!(step, Step::Restart) {
                    prop_assert_eq!(mark, before);
                    prop_assert!(newest >= changes);
                }
            }
        }
    }
}
