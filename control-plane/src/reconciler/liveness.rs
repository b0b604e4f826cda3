//! Proxy liveness: a proxy is unreachable when its xDS stream has been lost for a minute while the control plane ran,
//! and not in a mass disconnect. A provider's own health check is not examined here.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use ironmesh_catalog::{CertificateSource, ProxyId, Records};
use ironmesh_xds_server::{ClientChange, ClientKey};
use jiff::Timestamp;
use tokio::time::Instant;

use super::Reconciler;
use crate::peers::MAX_STREAMS;
use ironmesh_catalog::text::chain;

/// How long a stream must be lost before its proxy is unreachable.
pub(super) const UNREACHABLE_AFTER: Duration = Duration::from_secs(60);

/// The connected proxies, and the disconnected ones with their times.
#[derive(Debug, Default)]
pub(super) struct ProxyLiveness {
    connected: BTreeSet<ProxyId>,
    /// The proxies that are connected to other control planes of the mesh.
    connected_elsewhere: BTreeSet<ProxyId>,
    lost: BTreeMap<ProxyId, Lost>,
    /// The proxies that this control plane has refused a moment ago, because it serves as many as it may: they run.
    refused: BTreeSet<ProxyId>,
    /// Whether more proxies were disconnected than connected at the last look.
    is_mass_disconnect: bool,
    /// Whether the control plane serves proxies.
    is_serving: bool,
    /// The end of the time in which proxies that were connected before the restart may reconnect.
    grace_ends: Option<Instant>,
    /// Whether the result of [`ProxyLiveness::take_disconnected`] may differ from the one published last.
    is_news: bool,
}

/// The disconnected proxies, as far as there was time to connect.
#[derive(Debug, Clone, Default)]
pub(crate) struct DisconnectedProxies {
    /// When each lost its stream, except for unreachable proxies, whose join records say it.
    pub(crate) since: BTreeMap<ProxyId, Timestamp>,
    /// When the control plane started, while proxies that were connected before may still reconnect.
    pub(crate) grace: Option<Timestamp>,
}

/// A proxy without a stream.
#[derive(Debug, Clone, Copy)]
struct Lost {
    /// The start of the time after which it is unreachable: it starts again after a mass disconnect.
    counted_from: Instant,
    /// When its stream was lost; for a proxy that was connected before the restart, when serving began.
    since: Timestamp,
    /// Whether it was connected before the restart, and has not been since.
    is_expected: bool,
}

impl ProxyLiveness {
    /// Notes that proxies are served from now on: those that were connected before the restart should reconnect.
    pub(super) fn start_grace(&mut self, records: &Records, now: Instant, since: Timestamp) {
        let expected = records
            .values()
            .filter(|record| record.claimed_at.is_some() && record.unreachable_since.is_none());
        let away = expected.filter(|record| !self.is_connected(record.id));
        let away: Vec<_> = away.map(|record| record.id).collect();
        let lost = Lost { counted_from: now, since, is_expected: true };
        self.lost.extend(away.into_iter().map(|id| (id, lost)));
        (self.is_serving, self.grace_ends) = (true, Some(now + UNREACHABLE_AFTER));
    }

    /// Whether proxies that were connected before the restart may still reconnect.
    pub(super) fn is_in_grace(&self) -> bool {
        !self.is_serving || self.grace_ends.is_some()
    }

    /// Whether a proxy is connected to this control plane.
    pub(super) fn is_connected_here(&self, proxy: ProxyId) -> bool {
        self.connected.contains(&proxy)
    }

    /// Lets the time of all lost proxies start again: it is unknown whether they are connected elsewhere.
    pub(super) fn restart_counting(&mut self, now: Instant) {
        self.lost.values_mut().for_each(|lost| lost.counted_from = now);
    }

    fn is_connected(&self, proxy: ProxyId) -> bool {
        self.connected.contains(&proxy) || self.connected_elsewhere.contains(&proxy)
    }

    /// Notes whether a proxy is connected to another control plane: then it is not lost.
    pub(super) fn note_elsewhere(
        &mut self,
        proxy: ProxyId,
        is_connected: bool,
        now: Instant,
        since: Timestamp,
    ) {
        if is_connected {
            self.is_news |= self.lost.remove(&proxy).is_some();
            self.connected_elsewhere.insert(proxy);
        } else if self.connected_elsewhere.remove(&proxy) && !self.is_connected(proxy) {
            self.lost.insert(proxy, Lost { counted_from: now, since, is_expected: false });
            self.is_news = true;
        }
    }

    pub(super) fn connected(&mut self, proxy: ProxyId) {
        self.is_news |= self.lost.remove(&proxy).is_some();
        self.connected.insert(proxy);
    }

    pub(super) fn lost(&mut self, proxy: ProxyId, now: Instant, since: Timestamp) {
        if self.connected.remove(&proxy) && !self.is_connected(proxy) {
            self.lost.insert(proxy, Lost { counted_from: now, since, is_expected: false });
            self.is_news = true;
        }
    }

    /// The disconnected proxies that are not unreachable yet, each with the time when its stream was lost; none if
    /// nothing changed. Proxies that may still reconnect after a restart are left out.
    pub(super) fn take_disconnected(
        &mut self,
        now: Instant,
    ) -> Option<BTreeMap<ProxyId, Timestamp>> {
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

    /// The proxies that become unreachable now, and when each lost its stream. There are none in a mass disconnect,
    /// when more proxies are disconnected than connected: then this host or a whole site is cut off, and no single
    /// proxy is at fault. After it, all have time to reconnect. `records` are those of proxies in use.
    pub(super) fn due(&mut self, records: &Records, now: Instant) -> Vec<(ProxyId, Timestamp)> {
        self.lost.retain(|id, _| records.contains_key(id));
        for id in &self.refused {
            if let Some(lost) = self.lost.get_mut(id) {
                lost.counted_from = now;
            }
        }
        let connected = self.connected.len() + self.connected_elsewhere.len();
        let was_mass_disconnect =
            std::mem::replace(&mut self.is_mass_disconnect, self.lost.len() > connected);
        if self.is_mass_disconnect {
            if !was_mass_disconnect {
                tracing::warn!(
                    disconnected = self.lost.len(),
                    connected,
                    action = "no proxy is marked unreachable until most are connected again",
                    "mass disconnect of proxies"
                );
            }
            return Vec::new();
        }
        if was_mass_disconnect {
            self.lost.values_mut().for_each(|lost| lost.counted_from = now);
        }
        let is_due = |lost: &Lost| now >= lost.counted_from + UNREACHABLE_AFTER;
        let due = self.lost.iter().filter(|(_, lost)| is_due(lost));
        let due: Vec<_> = due.map(|(id, lost)| (*id, lost.since)).collect();
        for (id, _) in &due {
            self.lost.remove(id);
        }
        self.is_news |= !due.is_empty();
        due
    }

    /// Replaces the proxies that this control plane has refused a moment ago. Returns those that are new, or no longer
    /// among them.
    pub(super) fn replace_refused(&mut self, refused: BTreeSet<ProxyId>) -> Vec<ProxyId> {
        let differing = self.refused.symmetric_difference(&refused).copied().collect();
        self.refused = refused;
        differing
    }

    /// Returns proxies whose state could not be stored, so that the next pass tries again.
    pub(super) fn retry_later(&mut self, proxies: Vec<(ProxyId, Timestamp)>, now: Instant) {
        let lost = |since| Lost { counted_from: now, since, is_expected: false };
        self.lost.extend(proxies.into_iter().map(|(id, since)| (id, lost(since))));
        self.is_news = true;
    }

    /// When the next proxy becomes unreachable, or the grace of a restart ends.
    pub(super) fn deadline(&self) -> Option<Instant> {
        let lost =
            self.lost.values().filter(|_| !self.is_mass_disconnect).map(|lost| lost.counted_from);
        lost.map(|from| from + UNREACHABLE_AFTER).chain(self.grace_ends).min()
    }
}

impl Reconciler {
    /// Updates which proxies are connected; a proxy that reconnects is no longer unreachable.
    pub(super) fn update_presence(&mut self, news: &[(ClientKey, ClientChange)], now: Timestamp) {
        let (mut back, records) = (Vec::new(), self.register.all_records());
        for (client, news) in news {
            let Ok(id) = client.parse::<ProxyId>() else { continue };
            let is_configured = || self.is_configured(client, id);
            self.leaves.note_streams(id, news, is_configured, Instant::now());
            self.peers.note(id, |note| {
                note.connected_since =
                    (news.streams > 0).then(|| note.connected_since.unwrap_or(now));
                if news.streams == 0 {
                    note.streams.clear();
                    note.nacks = None;
                    return;
                }
                // This control plane decides by the reports that come here.
                note.serving = None;
                // Nearly all news are ACKs on the only stream.
                if !news.has_set || news.streams > 1 || note.streams.len() > 1 {
                    let streams = self.hub.live_streams(client).into_iter();
                    let streams = streams.filter(|stream| stream.is_aggregated);
                    note.streams = streams.map(|one| one.address).take(MAX_STREAMS).collect();
                }
            });
            if news.streams == 0 {
                self.liveness.lost(id, Instant::now(), now);
                continue;
            }
            self.liveness.connected(id);
            let record = records.get(&id);
            if record.is_some_and(|record| record.unreachable_since.is_some()) {
                tracing::info!(proxy = %id, "unreachable proxy reconnected");
                back.push((id, None));
            }
        }
        if let Err(error) = self.register.set_unreachable(&back) {
            tracing::error!(
                error = chain(&error),
                "cannot store which proxies are reachable again"
            );
        }
    }

    /// Ends the leaves of proxies whose agents report that their ports accept callers.
    pub(super) fn note_serving(&self) {
        for id in self.serving.take_changed() {
            if self.is_configured(&id.to_string(), id) {
                self.leaves.note_configured(id);
            }
        }
    }

    /// Whether the Envoy of a proxy has ACKed its resources, and accepts callers for the ports that it serves.
    fn is_configured(&self, client: &str, id: ProxyId) -> bool {
        let Some(config) = self.clients.config(client) else { return self.hub.is_synced(client) };
        let Some(snapshot) = self.snapshot_builder.snapshot() else { return false };
        let serves = &config.compiled.serves;
        self.hub.is_synced(client)
            && (config.proxy.metadata.certificates == CertificateSource::Ads
                || self.serving.accepts_callers(
                    id,
                    self.hub.process_starts(client),
                    serves,
                    snapshot,
                ))
    }

    /// Notes the proxies that were refused here a moment ago, and tells peers that they run.
    fn note_refused(&mut self) {
        let refused = self.hub.refused_clients().into_iter();
        let refused: BTreeSet<ProxyId> = refused.filter_map(|client| client.parse().ok()).collect();
        for id in self.liveness.replace_refused(refused.clone()) {
            self.peers.note(id, |note| note.refused = refused.contains(&id));
        }
    }

    /// Marks as unreachable the proxies that have been disconnected for long enough.
    pub(super) fn mark_unreachable(&mut self) {
        self.note_refused();
        if !self.peers.is_current() {
            self.liveness.restart_counting(Instant::now());
            return;
        }
        let newly_unreachable = self.liveness.due(&self.register.records(), Instant::now());
        if newly_unreachable.is_empty() {
            return;
        }
        for (proxy, since) in &newly_unreachable {
            tracing::warn!(%proxy, %since, reason = "no xDS stream for 60 s", "the proxy is unreachable");
        }
        let unreachable: Vec<_> =
            newly_unreachable.iter().map(|(id, since)| (*id, Some(*since))).collect();
        if let Err(error) = self.register.set_unreachable(&unreachable) {
            tracing::error!(error = chain(&error), "cannot store which proxies are unreachable");
            self.liveness.retry_later(newly_unreachable, Instant::now());
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
        assert_eq!(liveness.deadline(), Some(now + UNREACHABLE_AFTER));
        assert_eq!(liveness.due(&all, now + UNREACHABLE_AFTER / 2), []);
        assert_eq!(liveness.due(&all, now + UNREACHABLE_AFTER), [(id(1), then())]);
        assert_eq!(liveness.due(&all, now + UNREACHABLE_AFTER * 2), []);
        assert_eq!(liveness.deadline(), None);
        // A proxy that reconnects in time is not unreachable.
        liveness.lost(id(2), now, then());
        liveness.connected(id(2));
        assert_eq!(liveness.due(&all, now + UNREACHABLE_AFTER), []);
    }

    #[test]
    fn proxy_connected_to_another_control_plane_is_never_unreachable() {
        let (mut liveness, now, all) = (ProxyLiveness::default(), Instant::now(), records(1..=4));
        let later = now + UNREACHABLE_AFTER;
        for number in 1..=3 {
            liveness.connected(id(number));
        }
        // It moves: its new connection is known a moment after the end of the old one.
        liveness.lost(id(1), now, then());
        liveness.note_elsewhere(id(1), true, now, then());
        liveness.note_elsewhere(id(4), true, now, then());
        assert_eq!(liveness.due(&all, later), []);
        assert_eq!(liveness.take_disconnected(later), Some(BTreeMap::new()));
        // It moves back: the other control plane notices last.
        liveness.connected(id(1));
        liveness.note_elsewhere(id(1), false, later, then());
        assert_eq!(liveness.due(&all, later + UNREACHABLE_AFTER), []);
        // The other control plane has ended, or has lost the proxy.
        liveness.note_elsewhere(id(4), false, later, then());
        assert_eq!(liveness.due(&all, later + UNREACHABLE_AFTER), [(id(4), then())]);
        // Those that are connected elsewhere count against a mass disconnect.
        liveness.lost(id(2), later, then());
        liveness.lost(id(3), later, then());
        liveness.note_elsewhere(id(4), true, later, then());
        assert_eq!(liveness.due(&all, later + UNREACHABLE_AFTER).len(), 2);
    }

    #[test]
    fn refused_proxy_is_not_unreachable() {
        let (now, all) = (Instant::now(), records(1..=3));
        let mut liveness = ProxyLiveness::default();
        (1..=3).for_each(|number| liveness.connected(id(number)));
        liveness.lost(id(1), now, then());
        assert_eq!(liveness.replace_refused([id(1)].into()), [id(1)]);
        let later = now + UNREACHABLE_AFTER;
        assert!(liveness.due(&all, later).is_empty());
        assert!(liveness.replace_refused([id(1)].into()).is_empty());
        // Its time starts again when it tries no more.
        assert_eq!(liveness.replace_refused(BTreeSet::new()), [id(1)]);
        assert!(liveness.due(&all, later + UNREACHABLE_AFTER / 2).is_empty());
        assert_eq!(liveness.due(&all, later + UNREACHABLE_AFTER), [(id(1), then())]);
    }

    #[test]
    fn mass_disconnect_suppresses_unreachable_marking() {
        let (mut liveness, now, all) = (ProxyLiveness::default(), Instant::now(), records(1..=3));
        for number in 1..=3 {
            liveness.connected(id(number));
        }
        liveness.lost(id(1), now, then());
        liveness.lost(id(2), now, then());
        assert_eq!(liveness.due(&all, now + UNREACHABLE_AFTER * 9), []);
        assert_eq!(liveness.deadline(), None);
        // After the mass disconnect, a proxy that is still disconnected has its full time again.
        liveness.connected(id(2));
        let later = now + UNREACHABLE_AFTER * 9;
        assert_eq!(liveness.due(&all, later), []);
        assert_eq!(liveness.deadline(), Some(later + UNREACHABLE_AFTER));
        assert_eq!(liveness.due(&all, later + UNREACHABLE_AFTER), [(id(1), then())]);
    }

    #[test]
    fn restart_gives_known_proxies_time_to_reconnect() {
        let (mut liveness, now, all) = (ProxyLiveness::default(), Instant::now(), records(1..=3));
        liveness.connected(id(1));
        liveness.start_grace(&all, now, then());
        liveness.connected(id(2));
        assert_eq!(liveness.due(&all, now + UNREACHABLE_AFTER / 2), []);
        assert_eq!(liveness.due(&all, now + UNREACHABLE_AFTER), [(id(3), then())]);
        // A revoked proxy is never unreachable.
        liveness.lost(id(2), now, then());
        assert_eq!(liveness.due(&records([1, 3]), now + UNREACHABLE_AFTER), []);
    }

    #[test]
    fn restart_grace_delays_reporting_proxies_as_disconnected() {
        let (mut liveness, now, all) = (ProxyLiveness::default(), Instant::now(), records(1..=3));
        liveness.start_grace(&all, now, then());
        liveness.connected(id(1));
        liveness.connected(id(2));
        assert_eq!(liveness.take_disconnected(now), Some(BTreeMap::new()), "3 is still expected");
        assert_eq!(liveness.take_disconnected(now), None);
        liveness.lost(id(1), now, then());
        assert_eq!(liveness.take_disconnected(now), Some(BTreeMap::from([(id(1), then())])));
        assert!(liveness.deadline() <= Some(now + UNREACHABLE_AFTER));
        let away = BTreeMap::from([(id(1), then()), (id(3), then())]);
        assert_eq!(liveness.take_disconnected(now + UNREACHABLE_AFTER), Some(away));
    }
}
