//! Who is suspected to be dead: a proxy whose stream has been lost for long while we were up, and not
//! together with most of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_catalog::{ProxyId, Records};
use ironmesh_xds_server::{ClientChange, ClientKey};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Reconciler;
use ironmesh_catalog::text::chain;

/// How long a stream is lost before its proxy is suspected.
pub(super) const LOST_FOR: Duration = Duration::from_secs(60);

/// Who is connected, and who is lost since when.
#[derive(Debug, Default)]
pub(super) struct ProxyLiveness {
    connected: BTreeSet<ProxyId>,
    lost: BTreeMap<ProxyId, Lost>,
    /// Whether more were lost than connected when it was looked last.
    is_mass: bool,
    /// Whether proxies are served.
    has_begun: bool,
    /// Until when those that were connected before our restart have time to reconnect.
    grace_ends: Option<Instant>,
    /// Whether what [`ProxyLiveness::take_away`] gives may be another since it was published last.
    is_news: bool,
}

/// Who is away, as far as there was time to connect.
#[derive(Debug, Clone, Default)]
pub(crate) struct UnreachableProxies {
    /// When each lost its stream, but for those that are suspected to be dead.
    pub(crate) since: BTreeMap<ProxyId, Timestamp>,
    /// When the control plane started, as long as proxies that were connected before have time to reconnect.
    pub(crate) grace: Option<Timestamp>,
}

/// A proxy without a stream.
#[derive(Debug, Clone, Copy)]
struct Lost {
    /// Since when it could be back: its time begins anew where others than itself were in the way.
    counted_from: Instant,
    /// When its stream was lost; of one that was connected before our restart, when that was over.
    since: Timestamp,
    /// Whether it was connected before our restart, and has not been since.
    is_expected: bool,
}

impl ProxyLiveness {
    /// From now on proxies are served: those that were connected before our restart are expected back.
    pub(super) fn begin(&mut self, records: &Records, now: Instant, since: Timestamp) {
        let expected = records
            .values()
            .filter(|record| record.claimed_at.is_some() && record.suspect_since.is_none());
        let away = expected.filter(|record| !self.connected.contains(&record.id));
        let away: Vec<_> = away.map(|record| record.id).collect();
        let lost = Lost { counted_from: now, since, is_expected: true };
        self.lost.extend(away.into_iter().map(|id| (id, lost)));
        (self.has_begun, self.grace_ends) = (true, Some(now + LOST_FOR));
    }

    /// Whether those that were connected before our restart still have time to reconnect.
    pub(super) fn is_in_grace(&self) -> bool {
        !self.has_begun || self.grace_ends.is_some()
    }

    pub(super) fn connected(&mut self, proxy: ProxyId) {
        self.is_news |= self.lost.remove(&proxy).is_some();
        self.connected.insert(proxy);
    }

    pub(super) fn lost(&mut self, proxy: ProxyId, now: Instant, since: Timestamp) {
        if self.connected.remove(&proxy) {
            self.lost.insert(proxy, Lost { counted_from: now, since, is_expected: false });
            self.is_news = true;
        }
    }

    /// The proxies that are away and not suspected yet, each with when its stream was lost, if that is news. Those
    /// that are still expected back from our restart are not among them.
    pub(super) fn take_away(&mut self, now: Instant) -> Option<BTreeMap<ProxyId, Timestamp>> {
        if self.grace_ends.is_some_and(|end| now >= end) {
            self.grace_ends = None;
            self.is_news = true;
        }
        if !std::mem::take(&mut self.is_news) {
            return None;
        }
        let is_away = |lost: &Lost| !lost.is_expected || self.grace_ends.is_none();
        let away = self.lost.iter().filter(|(_, lost)| is_away(lost));
        Some(away.map(|(id, lost)| (*id, lost.since)).collect())
    }

    /// Whom to suspect now, and since when each is lost. Not while more are lost than connected: then it is we who are cut off, or a
    /// whole site, and nobody can tell who is dead; and when that ends, they have time to come back.
    /// `records` are of those who may be there.
    pub(super) fn due(&mut self, records: &Records, now: Instant) -> Vec<(ProxyId, Timestamp)> {
        self.lost.retain(|id, _| records.contains_key(id));
        let was_mass = std::mem::replace(&mut self.is_mass, self.lost.len() > self.connected.len());
        if self.is_mass {
            if !was_mass {
                tracing::warn!(
                    lost = self.lost.len(),
                    connected = self.connected.len(),
                    "more proxies are lost than connected: nobody is suspected to be dead"
                );
            }
            return Vec::new();
        }
        if was_mass {
            self.lost.values_mut().for_each(|lost| lost.counted_from = now);
        }
        let is_due = |lost: &Lost| now >= lost.counted_from + LOST_FOR;
        let due = self.lost.iter().filter(|(_, lost)| is_due(lost));
        let due: Vec<_> = due.map(|(id, lost)| (*id, lost.since)).collect();
        for (id, _) in &due {
            self.lost.remove(id);
        }
        self.is_news |= !due.is_empty();
        due
    }

    /// That these are suspected could not be kept: they are looked at again.
    pub(super) fn put_back(&mut self, proxies: Vec<(ProxyId, Timestamp)>, now: Instant) {
        let lost = |since| Lost { counted_from: now, since, is_expected: false };
        self.lost.extend(proxies.into_iter().map(|(id, since)| (id, lost(since))));
        self.is_news = true;
    }

    /// When somebody is to be suspected next, if all goes on as it is.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let lost = self.lost.values().filter(|_| !self.is_mass).map(|lost| lost.counted_from);
        lost.map(|from| from + LOST_FOR).chain(self.grace_ends).min()
    }
}

impl Reconciler {
    /// Takes note of who is connected and who is not.
    pub(super) fn note_presence(&mut self, news: &[(ClientKey, ClientChange)], now: Timestamp) {
        let mut back = Vec::new();
        for (client, news) in news {
            let Ok(id) = client.parse::<ProxyId>() else { continue };
            if news.streams == 0 {
                self.liveness.lost(id, Instant::now(), now);
                continue;
            }
            self.liveness.connected(id);
            let record = self.register.get(id);
            if record.is_some_and(|record| record.suspect_since.is_some()) {
                tracing::info!(proxy = %id, "the proxy is back: it is suspected to be dead no more");
                back.push((id, None));
            }
        }
        if let Err(error) = self.register.suspect(&back) {
            tracing::error!(error = chain(&error), "cannot keep who is suspected no more");
        }
    }

    /// Suspects those who have been lost for long.
    pub(super) fn suspect(&mut self) {
        let suspects = self.liveness.due(&self.register.records(), Instant::now());
        if suspects.is_empty() {
            return;
        }
        for (proxy, since) in &suspects {
            tracing::warn!(%proxy, %since, "the proxy has been away for a minute: it is suspected to be dead");
        }
        let suspected: Vec<_> = suspects.iter().map(|(id, since)| (*id, Some(*since))).collect();
        if let Err(error) = self.register.suspect(&suspected) {
            tracing::error!(error = chain(&error), "cannot keep who is suspected to be dead");
            self.liveness.put_back(suspects, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ironmesh_catalog::JoinRecord;
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> ProxyId {
        ProxyId(Uuid::from_u128(number))
    }

    fn then() -> Timestamp {
        "2026-01-01T00:00:00Z".parse().unwrap()
    }

    fn records(claimed: impl IntoIterator<Item = u128>) -> Records {
        let record = |number| {
            let record = JoinRecord {
                claimed_at: Some(Timestamp::UNIX_EPOCH),
                ..JoinRecord::new(
                    id(number),
                    vec!["store".parse().unwrap()],
                    "10.0.0.1:15003".parse().unwrap(),
                    Timestamp::UNIX_EPOCH,
                    Timestamp::MAX,
                )
            };
            (record.id, Arc::new(record))
        };
        claimed.into_iter().map(record).collect()
    }

    #[test]
    fn proxy_lost_beyond_the_timeout_is_unreachable_once() {
        let (mut liveness, now, all) = (ProxyLiveness::default(), Instant::now(), records(1..=3));
        for number in 1..=3 {
            liveness.connected(id(number));
        }
        liveness.lost(id(1), now, then());
        assert_eq!(liveness.deadline(), Some(now + LOST_FOR));
        assert_eq!(liveness.due(&all, now + LOST_FOR / 2), []);
        assert_eq!(liveness.due(&all, now + LOST_FOR), [(id(1), then())]);
        assert_eq!(liveness.due(&all, now + LOST_FOR * 2), []);
        assert_eq!(liveness.deadline(), None);
        // One that comes back in time is not.
        liveness.lost(id(2), now, then());
        liveness.connected(id(2));
        assert_eq!(liveness.due(&all, now + LOST_FOR), []);
    }

    #[test]
    fn mass_disconnect_suppresses_unreachable_marking() {
        let (mut liveness, now, all) = (ProxyLiveness::default(), Instant::now(), records(1..=3));
        for number in 1..=3 {
            liveness.connected(id(number));
        }
        liveness.lost(id(1), now, then());
        liveness.lost(id(2), now, then());
        assert_eq!(liveness.due(&all, now + LOST_FOR * 9), []);
        assert_eq!(liveness.deadline(), None);
        // When others are back, who is away still has time to come back, and then is judged.
        liveness.connected(id(2));
        let later = now + LOST_FOR * 9;
        assert_eq!(liveness.due(&all, later), []);
        assert_eq!(liveness.deadline(), Some(later + LOST_FOR));
        assert_eq!(liveness.due(&all, later + LOST_FOR), [(id(1), then())]);
    }

    #[test]
    fn restart_gives_known_proxies_time_to_reconnect() {
        let (mut liveness, now, all) = (ProxyLiveness::default(), Instant::now(), records(1..=3));
        liveness.connected(id(1));
        liveness.begin(&all, now, then());
        liveness.connected(id(2));
        assert_eq!(liveness.due(&all, now + LOST_FOR / 2), []);
        assert_eq!(liveness.due(&all, now + LOST_FOR), [(id(3), then())]);
        // Who is let in no more is no suspect.
        liveness.lost(id(2), now, then());
        assert_eq!(liveness.due(&records([1, 3]), now + LOST_FOR), []);
    }

    #[test]
    fn restart_grace_delays_reporting_proxies_as_disconnected() {
        let (mut liveness, now, all) = (ProxyLiveness::default(), Instant::now(), records(1..=3));
        liveness.begin(&all, now, then());
        liveness.connected(id(1));
        liveness.connected(id(2));
        assert_eq!(liveness.take_away(now), Some(BTreeMap::new()), "3 is still expected");
        assert_eq!(liveness.take_away(now), None);
        liveness.lost(id(1), now, then());
        assert_eq!(liveness.take_away(now), Some(BTreeMap::from([(id(1), then())])));
        assert!(liveness.deadline() <= Some(now + LOST_FOR));
        let away = BTreeMap::from([(id(1), then()), (id(3), then())]);
        assert_eq!(liveness.take_away(now + LOST_FOR), Some(away));
    }
}
