//! Identities that are live on two machines at once: a copy of a proxy's files has its identity.
//!
//! It raises an alarm and closes no stream: it cannot know which machine is the impostor's. Streams at peers count like
//! those here, by the notes of the peers, so each control plane raises the same alarm.

use std::collections::{BTreeMap, BTreeSet};
use std::net::{IpAddr, SocketAddr};
use std::time::Duration;

use ironmesh_catalog::codes::DUPLICATE_IDENTITY;
use ironmesh_catalog::{Finding, ProxyId, ProxyName};
use ironmesh_xds_server::{ClientChange, ClientKey, LiveStream, SILENCE_LIMIT};
use jiff::{SignedDuration, Timestamp};
use tokio::time::Instant;

use super::Reconciler;

/// Envoy's drain time in a hot restart, as `ironmesh proxy bootstrap` sets it (`--drain-time-s`).
const DRAIN_TIME: Duration = Duration::from_secs(30);

/// How long two processes of one proxy may be live at once, as in a hot restart.
pub(super) const OVERLAP: Duration = Duration::from_secs(2 * DRAIN_TIME.as_secs());

/// How long streams from two addresses may be live at once: a machine whose address changes leaves a stream open until
/// keepalive ends it.
const DEAD_STREAM: Duration = SILENCE_LIMIT;

/// How much longer streams at different control planes may be live at once: the end of one is noted with a delay.
const NOTE_DELAY: Duration = Duration::from_secs(5);

/// The most streams that a finding lists.
const LISTED: usize = 4;

/// The identities with more than one live process.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    /// The identities whose streams overlap, and when that becomes an alarm.
    overlapping: BTreeMap<ProxyId, Instant>,
    alarms: BTreeMap<ProxyId, Alarm>,
    /// The streams at peers.
    elsewhere: BTreeMap<ProxyId, Vec<ProcessStream>>,
    /// The proxies whose streams at peers have changed since they were examined.
    changed: BTreeSet<ProxyId>,
    /// Whether what is known of streams at peers was current at the last examination.
    was_current: bool,
}

#[derive(Debug)]
struct Alarm {
    streams: Vec<ProcessStream>,
    finding: Finding,
}

/// A stream of the aggregated service: each process of Envoy has one.
#[derive(Debug, Clone, PartialEq, Eq)]
struct ProcessStream {
    address: SocketAddr,
    /// Since when it is known to be live.
    since: Instant,
    /// The host name of the peer that has it; none if it is here.
    peer: Option<String>,
}

/// The meaning of one identity's streams.
#[derive(Debug, PartialEq, Eq)]
enum Verdict {
    /// One process.
    Single,
    /// A hot restart or a changed address, if it ends by this time.
    Overlap(Instant),
    /// Two machines.
    TwoAddresses,
    /// Two processes, for longer than a hot restart takes.
    LongOverlap,
}

impl Duplicates {
    /// Notes the streams of a proxy at peers, each with the host name of its peer.
    pub(super) fn note_elsewhere(
        &mut self,
        proxy: ProxyId,
        streams: Vec<(SocketAddr, String)>,
        now: Instant,
    ) {
        let before = self.elsewhere.remove(&proxy).unwrap_or_default();
        // Clocks of machines differ: the time of the note counts.
        let stream = |(address, host): (SocketAddr, String)| {
            let is_it =
                |one: &&ProcessStream| one.address == address && one.peer.as_ref() == Some(&host);
            let since = before.iter().find(is_it).map_or(now, |known| known.since);
            ProcessStream { address, since, peer: Some(host) }
        };
        let streams: Vec<_> = streams.into_iter().map(stream).collect();
        if streams != before {
            self.changed.insert(proxy);
        }
        if !streams.is_empty() {
            self.elsewhere.insert(proxy, streams);
        }
    }

    /// Notes whether what is known of streams at peers is current. If it is again, all of them are examined anew.
    fn set_current(&mut self, is_current: bool) {
        if is_current && !std::mem::replace(&mut self.was_current, is_current) {
            self.changed.extend(self.elsewhere.keys());
        }
        self.was_current = is_current;
    }

    /// Examines the streams of `proxy`: those here, and those at peers unless what is known of these is outdated. Then they
    /// raise no alarm, and end none. Returns whether its alarm has changed.
    pub(super) fn examine(
        &mut self,
        proxy: ProxyId,
        name: &ProxyName,
        streams: Vec<LiveStream>,
        is_current: bool,
        (now, wall): (Instant, Timestamp),
    ) -> bool {
        let here = streams.into_iter().filter(|stream| stream.is_aggregated).map(|stream| {
            ProcessStream { address: stream.address, since: stream.since, peer: None }
        });
        let elsewhere = self.elsewhere.get(&proxy).filter(|_| is_current);
        let mut streams: Vec<_> = here.chain(elsewhere.into_iter().flatten().cloned()).collect();
        streams.sort_by_key(|stream| stream.since);
        let verdict = verdict(&streams, now);
        match verdict {
            Verdict::Overlap(until) => self.overlapping.insert(proxy, until),
            _ => self.overlapping.remove(&proxy),
        };
        if !matches!(verdict, Verdict::TwoAddresses | Verdict::LongOverlap) {
            if !is_current && self.elsewhere.contains_key(&proxy) {
                return false;
            }
            let alarm = self.alarms.remove(&proxy);
            if let Some(alarm) = &alarm {
                let raised = alarm.finding.message.as_str();
                tracing::info!(%proxy, raised, "the identity is live on one machine again");
            }
            return alarm.is_some();
        }
        if self.alarms.get(&proxy).is_some_and(|alarm| alarm.streams == streams) {
            return false;
        }
        let finding = finding(proxy, name, &verdict, &streams, now, wall);
        tracing::error!(%proxy, "{finding}");
        self.alarms.insert(proxy, Alarm { streams, finding });
        true
    }

    /// When the next overlap becomes an alarm.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.overlapping.values().min().copied()
    }

    /// Whether a change of a proxy's only stream here may matter.
    fn concerns(&self, proxy: ProxyId) -> bool {
        let is_known = self.overlapping.contains_key(&proxy) || self.alarms.contains_key(&proxy);
        is_known || self.elsewhere.contains_key(&proxy)
    }

    /// The identities whose overlap must be examined now.
    fn due(&mut self, now: Instant) -> BTreeSet<ProxyId> {
        let due = self.overlapping.iter().filter(|(_, until)| **until <= now);
        let mut due: BTreeSet<_> = due.map(|(proxy, _)| *proxy).collect();
        due.append(&mut self.changed);
        due
    }

    /// The alarms.
    pub(super) fn findings(&self) -> BTreeMap<ProxyId, Finding> {
        let findings = self.alarms.iter().map(|(proxy, alarm)| (*proxy, alarm.finding.clone()));
        findings.collect()
    }
}

/// The meaning of `streams`, which are of the aggregated service, oldest first.
fn verdict(streams: &[ProcessStream], now: Instant) -> Verdict {
    let [_, second, ..] = streams else { return Verdict::Single };
    let addresses = || streams.iter().map(|stream| stream.address.ip());
    let are_two = addresses().any(|one| addresses().any(|other| are_two_machines(one, other)));
    let (limit, alarm) = if are_two {
        (DEAD_STREAM, Verdict::TwoAddresses)
    } else {
        (OVERLAP, Verdict::LongOverlap)
    };
    let is_noted = streams.iter().any(|stream| stream.peer.is_some());
    let until = second.since + limit + if is_noted { NOTE_DELAY } else { Duration::ZERO };
    if now >= until { alarm } else { Verdict::Overlap(until) }
}

/// Whether two addresses certainly belong to different machines. Loopback is always this machine, and one machine may
/// connect by IPv4 and by IPv6.
fn are_two_machines(one: IpAddr, other: IpAddr) -> bool {
    let is_one_loopback = one.is_loopback() && other.is_loopback();
    one != other && one.is_ipv4() == other.is_ipv4() && !is_one_loopback
}

fn finding(
    id: ProxyId,
    proxy: &ProxyName,
    verdict: &Verdict,
    streams: &[ProcessStream],
    now: Instant,
    wall: Timestamp,
) -> Finding {
    let since = |stream: &ProcessStream| {
        let age = SignedDuration::try_from(now.saturating_duration_since(stream.since));
        wall.saturating_sub(age.unwrap_or(SignedDuration::ZERO)).unwrap_or(wall)
    };
    let mut list: Vec<_> = streams
        .iter()
        .take(LISTED)
        .map(|stream| {
            let peer = stream.peer.as_ref().map(|host| format!(" at control plane {host}"));
            format!("{}{} (since {:.0})", stream.address, peer.unwrap_or_default(), since(stream))
        })
        .collect();
    if streams.len() > LISTED {
        list.push(format!("{} more", streams.len() - LISTED));
    }
    let list = list.join(", ");
    let message = match verdict {
        Verdict::TwoAddresses => {
            format!("proxy {proxy} is live on two machines: ADS streams from {list}")
        }
        _ => format!(
            "proxy {proxy} is live twice for more than {} s: ADS streams from {list}",
            OVERLAP.as_secs()
        ),
    };
    let help = format!(
        "unless you copied its files yourself, its key is stolen: run `ironmesh proxy revoke {proxy}`, \
         then enroll the proxy again with `ironmesh proxy bootstrap`"
    );
    Finding::error(DUPLICATE_IDENTITY, None, message).object(id).help(help)
}

impl Reconciler {
    /// Examines the identities whose streams have changed, here or at peers, and those whose overlap has lasted too long.
    pub(super) fn check_duplicates(&mut self, news: &[(ClientKey, ClientChange)], wall: Timestamp) {
        let now = Instant::now();
        let is_current = self.peers.is_current();
        self.duplicates.set_current(is_current);
        // Nearly all news are ACKs of clients with one stream.
        let mut concerned = self.duplicates.due(now);
        for (client, news) in news {
            let Ok(proxy) = client.parse::<ProxyId>() else { continue };
            if news.streams > 1 || self.duplicates.concerns(proxy) {
                concerned.insert(proxy);
            }
        }
        let mut is_news = false;
        for proxy in concerned {
            let streams = self.hub.live_streams(&proxy.to_string());
            let record = self.register.get(proxy);
            let name = record.map_or_else(|| proxy.into(), |record| record.display_name());
            is_news |= self.duplicates.examine(proxy, &name, streams, is_current, (now, wall));
        }
        if is_news {
            self.duplicate_findings.send_replace(self.duplicates.findings());
        }
    }
}

#[cfg(test)]
mod tests {
    use uuid::Uuid;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    fn stream(address: &str, since: Instant) -> LiveStream {
        LiveStream { address: address.parse().unwrap(), since, is_aggregated: true }
    }

    #[test]
    fn hot_restart_on_one_machine_is_no_duplicate() {
        let now = Instant::now();
        let stream = |address: &str, since| ProcessStream {
            address: address.parse().unwrap(),
            since,
            peer: None,
        };
        let streams = [stream("10.0.0.1:1", now), stream("10.0.0.1:2", now + SECOND * 100)];
        let until = now + SECOND * 100 + OVERLAP;
        assert_eq!(verdict(&streams, now + SECOND * 159), Verdict::Overlap(until));
        assert_eq!(verdict(&streams, until), Verdict::LongOverlap);
        // The older process has ended, and a second restart begins.
        let streams = [streams[1].clone(), stream("10.0.0.1:3", until)];
        assert_eq!(verdict(&streams, until), Verdict::Overlap(until + OVERLAP));
        assert_eq!(verdict(&streams[..1], until + OVERLAP), Verdict::Single);
    }

    #[test]
    fn addresses_possibly_of_one_machine_are_not_two_machines() {
        let two =
            |one: &str, other: &str| are_two_machines(one.parse().unwrap(), other.parse().unwrap());
        assert!(two("10.0.0.1", "10.0.0.2") && two("fd00::1", "fd00::2"));
        assert!(two("10.0.0.1", "127.0.0.1"));
        assert!(!two("10.0.0.1", "10.0.0.1") && !two("127.0.0.1", "127.0.0.9"));
        assert!(!two("::1", "127.0.0.1") && !two("10.0.0.1", "fd00::1"));
    }

    #[test]
    fn alarm_names_both_addresses_and_ends_when_one_stream_remains() {
        let (mut duplicates, now) = (Duplicates::default(), Instant::now());
        let wall: Timestamp = "2026-11-21T07:00:00Z".parse().unwrap();
        let proxy = ProxyId(Uuid::from_u128(1));
        let both = vec![
            stream("10.0.0.1:5", now - SECOND * 3600),
            stream("10.0.0.2:6", now - DEAD_STREAM),
        ];
        let early = now - SECOND;
        assert!(
            !duplicates.examine(proxy, &proxy.into(), both.clone(), true, (early, wall)),
            "the older may be dead"
        );
        assert_eq!(duplicates.deadline(), Some(now));
        assert!(duplicates.examine(proxy, &proxy.into(), both.clone(), true, (now, wall)));
        assert!(
            !duplicates.examine(
                proxy,
                &proxy.into(),
                both.clone(),
                true,
                (now + SECOND, wall + SECOND)
            ),
            "no news"
        );
        let finding = &duplicates.findings()[&proxy];
        let words = format!("{finding} {}", finding.help.as_deref().unwrap_or_default());
        for part in [
            "error[IM0713]",
            "two machines",
            "10.0.0.1:5 (since 2026-11-21T06:00:00Z)",
            "10.0.0.2:6 (since 2026-11-21T06:59:10Z)",
            "ironmesh proxy revoke 00000000-0000-0000-0000-000000000001",
        ] {
            assert!(words.contains(part), "{words}");
        }
        assert!(duplicates.examine(proxy, &proxy.into(), both[1..].to_vec(), true, (now, wall)));
        assert!(duplicates.findings().is_empty() && duplicates.deadline().is_none());
    }

    #[test]
    fn non_aggregated_streams_are_not_counted_as_duplicates() {
        let (mut duplicates, now) = (Duplicates::default(), Instant::now());
        let separate = LiveStream { is_aggregated: false, ..stream("10.0.0.2:6", now) };
        let streams = vec![stream("10.0.0.1:5", now), separate];
        assert!(!duplicates.examine(
            ProxyId(Uuid::from_u128(1)),
            &ProxyId(Uuid::from_u128(1)).into(),
            streams,
            true,
            (now, Timestamp::UNIX_EPOCH)
        ));
        assert_eq!(duplicates.deadline(), None);
    }

    #[test]
    fn stream_at_a_peer_raises_the_alarm_of_two_machines() {
        let (mut duplicates, now) = (Duplicates::default(), Instant::now());
        let proxy = ProxyId(Uuid::from_u128(1));
        let here = || vec![stream("10.0.0.1:5", now)];
        let examine = |duplicates: &mut Duplicates, streams, is_current, later: u32| {
            let at = (now + SECOND * later, Timestamp::UNIX_EPOCH);
            duplicates.examine(proxy, &proxy.into(), streams, is_current, at)
        };
        let there = || vec![("10.0.0.2:6".parse().unwrap(), "cp-2".to_owned())];
        duplicates.note_elsewhere(proxy, there(), now);
        assert_eq!(duplicates.due(now), [proxy].into());
        assert!(!examine(&mut duplicates, here(), true, 0));
        // The same note again does not begin the time anew.
        duplicates.note_elsewhere(proxy, there(), now + SECOND * 40);
        let limit = u32::try_from((DEAD_STREAM + NOTE_DELAY).as_secs()).unwrap();
        assert_eq!(duplicates.deadline(), Some(now + SECOND * limit));
        assert!(!examine(&mut duplicates, here(), false, limit), "the note is outdated");
        assert!(examine(&mut duplicates, here(), true, limit));
        let finding = &duplicates.findings()[&proxy].message;
        assert!(finding.contains("10.0.0.2:6 at control plane cp-2 (since"), "{finding}");
        // It has moved: one process is left.
        assert!(examine(&mut duplicates, Vec::new(), true, limit));
        assert!(duplicates.findings().is_empty() && duplicates.concerns(proxy));
        duplicates.note_elsewhere(proxy, Vec::new(), now);
        assert!(!examine(&mut duplicates, here(), true, limit) && !duplicates.concerns(proxy));
    }

    #[test]
    fn alarm_stays_while_streams_at_peers_are_unknown() {
        let (mut duplicates, now) = (Duplicates::default(), Instant::now());
        let proxy = ProxyId(Uuid::from_u128(1));
        let later = now + DEAD_STREAM + NOTE_DELAY;
        let examine = |duplicates: &mut Duplicates, streams, is_current| {
            duplicates.set_current(is_current);
            let (is_due, at) = (duplicates.due(later), (later, Timestamp::UNIX_EPOCH));
            let is_news = duplicates.examine(proxy, &proxy.into(), streams, is_current, at);
            (is_due.contains(&proxy), is_news)
        };
        let here = || vec![stream("10.0.0.1:5", now)];
        duplicates.note_elsewhere(
            proxy,
            vec![("10.0.0.2:6".parse().unwrap(), "cp-2".to_owned())],
            now,
        );
        assert_eq!(examine(&mut duplicates, here(), true), (true, true));
        // An ACK during an outage of etcd.
        assert_eq!(examine(&mut duplicates, here(), false), (false, false));
        assert_eq!((duplicates.findings().len(), duplicates.deadline()), (1, None));
        // With the same notes after it, the streams are examined again.
        assert_eq!(examine(&mut duplicates, Vec::new(), false), (false, false));
        assert_eq!(examine(&mut duplicates, Vec::new(), true), (true, true));
        assert!(duplicates.findings().is_empty());
        assert_eq!(examine(&mut duplicates, here(), true), (false, true), "only once");
    }
}
