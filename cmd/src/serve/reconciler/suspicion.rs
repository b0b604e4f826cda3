//! Who is suspected to be dead: a proxy whose stream has been lost for long while we were up, and not
//! together with most of the others.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_catalog::{ProxyId, Records};
use ironmesh_xds_server::{ClientKey, ClientNews};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Reconciler;
use crate::exit::chain;

/// How long a stream is lost before its proxy is suspected.
pub(super) const LOST_FOR: Duration = Duration::from_secs(60);

/// Who is connected, and who is lost since when.
#[derive(Debug, Default)]
pub(super) struct Suspicion {
    connected: BTreeSet<ProxyId>,
    lost: BTreeMap<ProxyId, Instant>,
    /// Whether more were lost than connected when it was looked last.
    is_mass: bool,
}

impl Suspicion {
    /// From now on proxies are served: those that were connected before our restart are expected back.
    pub(super) fn begin(&mut self, records: &Records, now: Instant) {
        let expected = records
            .values()
            .filter(|record| record.claimed_at.is_some() && record.suspect_since.is_none());
        let away = expected.filter(|record| !self.connected.contains(&record.id));
        let away: Vec<_> = away.map(|record| record.id).collect();
        self.lost.extend(away.into_iter().map(|id| (id, now)));
    }

    pub(super) fn connected(&mut self, proxy: ProxyId) {
        self.lost.remove(&proxy);
        self.connected.insert(proxy);
    }

    pub(super) fn lost(&mut self, proxy: ProxyId, now: Instant) {
        if self.connected.remove(&proxy) {
            self.lost.insert(proxy, now);
        }
    }

    /// Whom to suspect now. Not while more are lost than connected: then it is we who are cut off, or a
    /// whole site, and nobody can tell who is dead; and when that ends, they have time to come back.
    /// `records` are of those who may be there.
    pub(super) fn due(&mut self, records: &Records, now: Instant) -> Vec<ProxyId> {
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
            self.lost.values_mut().for_each(|since| *since = now);
        }
        let is_due = |since: &Instant| now >= *since + LOST_FOR;
        let due: Vec<_> =
            self.lost.iter().filter(|(_, since)| is_due(since)).map(|(id, _)| *id).collect();
        for id in &due {
            self.lost.remove(id);
        }
        due
    }

    /// That these are suspected could not be kept: they are looked at again.
    pub(super) fn put_back(&mut self, proxies: Vec<ProxyId>, now: Instant) {
        self.lost.extend(proxies.into_iter().map(|id| (id, now)));
    }

    /// When somebody is to be suspected next, if all goes on as it is.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.lost.values().filter(|_| !self.is_mass).min().map(|since| *since + LOST_FOR)
    }
}

impl Reconciler {
    /// Takes note of who is connected and who is not.
    pub(super) fn note_presence(&mut self, news: &[(ClientKey, ClientNews)]) {
        let mut back = Vec::new();
        for (client, news) in news {
            let Ok(id) = client.parse::<ProxyId>() else { continue };
            if news.streams == 0 {
                self.suspicion.lost(id, Instant::now());
                continue;
            }
            self.suspicion.connected(id);
            let record = self.register.get(id);
            if record.is_some_and(|record| record.suspect_since.is_some()) {
                tracing::info!(proxy = %id, "the proxy is back: it is suspected to be dead no more");
                back.push(id);
            }
        }
        if let Err(error) = self.register.suspect(&back, None) {
            tracing::error!(error = chain(&error), "cannot keep who is suspected no more");
        }
    }

    /// Suspects those who have been lost for long.
    pub(super) fn suspect(&mut self, now: Timestamp) {
        let suspects = self.suspicion.due(&self.register.records(), Instant::now());
        if suspects.is_empty() {
            return;
        }
        for proxy in &suspects {
            tracing::warn!(%proxy, "the proxy has been away for a minute: it is suspected to be dead");
        }
        if let Err(error) = self.register.suspect(&suspects, Some(now)) {
            tracing::error!(error = chain(&error), "cannot keep who is suspected to be dead");
            self.suspicion.put_back(suspects, Instant::now());
        }
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use ironmesh_catalog::{JoinRecord, Labels, Locality, Participation};
    use jiff::Timestamp;
    use uuid::Uuid;

    use super::*;

    fn id(number: u128) -> ProxyId {
        ProxyId(Uuid::from_u128(number))
    }

    fn records(claimed: impl IntoIterator<Item = u128>) -> Records {
        let record = |number| {
            let record = JoinRecord {
                id: id(number),
                services: vec!["store".parse().unwrap()],
                mesh_address: "10.0.0.1:15003".parse().unwrap(),
                addresses: Vec::new(),
                machine: None,
                joined_at: Timestamp::UNIX_EPOCH,
                certificate_expires_at: Timestamp::MAX,
                claimed_at: Some(Timestamp::UNIX_EPOCH),
                labels: Labels::default(),
                locality: Locality::default(),
                participation: Participation::default(),
                revoked: None,
                vacant: Participation::default(),
                suspect_since: None,
            };
            (record.id, Arc::new(record))
        };
        claimed.into_iter().map(record).collect()
    }

    #[test]
    fn who_is_lost_for_long_is_suspected_once() {
        let (mut suspicion, now, all) = (Suspicion::default(), Instant::now(), records(1..=3));
        for number in 1..=3 {
            suspicion.connected(id(number));
        }
        suspicion.lost(id(1), now);
        assert_eq!(suspicion.deadline(), Some(now + LOST_FOR));
        assert_eq!(suspicion.due(&all, now + LOST_FOR / 2), []);
        assert_eq!(suspicion.due(&all, now + LOST_FOR), [id(1)]);
        assert_eq!(suspicion.due(&all, now + LOST_FOR * 2), []);
        assert_eq!(suspicion.deadline(), None);
        // One that comes back in time is not.
        suspicion.lost(id(2), now);
        suspicion.connected(id(2));
        assert_eq!(suspicion.due(&all, now + LOST_FOR), []);
    }

    #[test]
    fn of_a_mass_that_is_lost_nobody_is_suspected() {
        let (mut suspicion, now, all) = (Suspicion::default(), Instant::now(), records(1..=3));
        for number in 1..=3 {
            suspicion.connected(id(number));
        }
        suspicion.lost(id(1), now);
        suspicion.lost(id(2), now);
        assert_eq!(suspicion.due(&all, now + LOST_FOR * 9), []);
        assert_eq!(suspicion.deadline(), None);
        // When others are back, who is away still has time to come back, and then is judged.
        suspicion.connected(id(2));
        let later = now + LOST_FOR * 9;
        assert_eq!(suspicion.due(&all, later), []);
        assert_eq!(suspicion.deadline(), Some(later + LOST_FOR));
        assert_eq!(suspicion.due(&all, later + LOST_FOR), [id(1)]);
    }

    #[test]
    fn after_our_restart_those_who_were_there_have_time_to_come_back() {
        let (mut suspicion, now, all) = (Suspicion::default(), Instant::now(), records(1..=3));
        suspicion.connected(id(1));
        suspicion.begin(&all, now);
        suspicion.connected(id(2));
        assert_eq!(suspicion.due(&all, now + LOST_FOR / 2), []);
        assert_eq!(suspicion.due(&all, now + LOST_FOR), [id(3)]);
        // Who is let in no more is no suspect.
        suspicion.lost(id(2), now);
        assert_eq!(suspicion.due(&records([1, 3]), now + LOST_FOR), []);
    }
}
