//! Identities that are live on two machines at once: a copy of a proxy's files has its identity.
//!
//! It raises an alarm and closes no stream: it cannot know which machine is the impostor's.

use std::collections::BTreeMap;
use std::net::IpAddr;
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

/// The most streams that a finding lists.
const LISTED: usize = 4;

/// The identities with more than one live process.
#[derive(Debug, Default)]
pub(super) struct Duplicates {
    /// The identities whose streams overlap, and when that becomes an alarm.
    overlapping: BTreeMap<ProxyId, Instant>,
    alarms: BTreeMap<ProxyId, Alarm>,
}

#[derive(Debug)]
struct Alarm {
    streams: Vec<LiveStream>,
    finding: Finding,
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
    /// Examines the streams of `proxy`. Returns whether its alarm has changed.
    pub(super) fn examine(
        &mut self,
        proxy: ProxyId,
        name: &ProxyName,
        mut streams: Vec<LiveStream>,
        now: Instant,
        wall: Timestamp,
    ) -> bool {
        streams.retain(|stream| stream.is_aggregated);
        let verdict = verdict(&streams, now);
        match verdict {
            Verdict::Overlap(until) => self.overlapping.insert(proxy, until),
            _ => self.overlapping.remove(&proxy),
        };
        if !matches!(verdict, Verdict::TwoAddresses | Verdict::LongOverlap) {
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
        let finding = finding(name, &verdict, &streams, now, wall);
        tracing::error!(%proxy, "{finding}");
        self.alarms.insert(proxy, Alarm { streams, finding });
        true
    }

    /// When the next overlap becomes an alarm.
    pub(super) fn deadline(&self) -> Option<Instant> {
        self.overlapping.values().min().copied()
    }

    /// Whether no identity has more than one live stream.
    fn is_empty(&self) -> bool {
        self.overlapping.is_empty() && self.alarms.is_empty()
    }

    /// The identities whose overlap must be examined now.
    fn due(&self, now: Instant) -> Vec<ProxyId> {
        let due = self.overlapping.iter().filter(|(_, until)| **until <= now);
        due.map(|(proxy, _)| *proxy).collect()
    }

    /// The alarms.
    pub(super) fn findings(&self) -> BTreeMap<ProxyId, Finding> {
        let findings = self.alarms.iter().map(|(proxy, alarm)| (*proxy, alarm.finding.clone()));
        findings.collect()
    }
}

/// The meaning of `streams`, which are of the aggregated service, oldest first.
fn verdict(streams: &[LiveStream], now: Instant) -> Verdict {
    let [_, second, ..] = streams else { return Verdict::Single };
    let addresses = || streams.iter().map(|stream| stream.address.ip());
    let are_two = addresses().any(|one| addresses().any(|other| are_two_machines(one, other)));
    let (limit, alarm) = if are_two {
        (DEAD_STREAM, Verdict::TwoAddresses)
    } else {
        (OVERLAP, Verdict::LongOverlap)
    };
    let until = second.since + limit;
    if now >= until { alarm } else { Verdict::Overlap(until) }
}

/// Whether two addresses certainly belong to different machines. Loopback is always this machine, and one machine may
/// connect by IPv4 and by IPv6.
fn are_two_machines(one: IpAddr, other: IpAddr) -> bool {
    let is_one_loopback = one.is_loopback() && other.is_loopback();
    one != other && one.is_ipv4() == other.is_ipv4() && !is_one_loopback
}

fn finding(
    proxy: &ProxyName,
    verdict: &Verdict,
    streams: &[LiveStream],
    now: Instant,
    wall: Timestamp,
) -> Finding {
    let since = |stream: &LiveStream| {
        let age = SignedDuration::try_from(now.saturating_duration_since(stream.since));
        wall.saturating_sub(age.unwrap_or(SignedDuration::ZERO)).unwrap_or(wall)
    };
    let mut list: Vec<_> = streams
        .iter()
        .take(LISTED)
        .map(|stream| format!("{} (since {:.0})", stream.address, since(stream)))
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
    Finding::error(DUPLICATE_IDENTITY, None, message).help(help)
}

impl Reconciler {
    /// Examines the identities whose streams have changed, and those whose overlap has lasted too long.
    pub(super) fn check_duplicates(&mut self, news: &[(ClientKey, ClientChange)], wall: Timestamp) {
        let now = Instant::now();
        // Nearly all news are ACKs of clients with one stream.
        let duplicates = &self.duplicates;
        let is_concerned = |news: &ClientChange| news.streams > 1 || !duplicates.is_empty();
        let changed = news.iter().filter(|(_, news)| is_concerned(news));
        let changed = changed.filter_map(|(client, _)| client.parse::<ProxyId>().ok());
        let concerned: Vec<_> = changed.chain(duplicates.due(now)).collect();
        let mut is_news = false;
        for proxy in concerned {
            let streams = self.hub.live_streams(&proxy.to_string());
            let record = self.register.get(proxy);
            let name = record.map_or_else(|| proxy.into(), |record| record.display_name());
            is_news |= self.duplicates.examine(proxy, &name, streams, now, wall);
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
        let streams = [stream("10.0.0.1:1", now), stream("10.0.0.1:2", now + SECOND * 100)];
        let until = now + SECOND * 100 + OVERLAP;
        assert_eq!(verdict(&streams, now + SECOND * 159), Verdict::Overlap(until));
        assert_eq!(verdict(&streams, until), Verdict::LongOverlap);
        // The older process has ended, and a second restart begins.
        let streams = [streams[1], stream("10.0.0.1:3", until)];
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
            !duplicates.examine(proxy, &proxy.into(), both.clone(), early, wall),
            "the older may be dead"
        );
        assert_eq!(duplicates.deadline(), Some(now));
        assert!(duplicates.examine(proxy, &proxy.into(), both.clone(), now, wall));
        assert!(
            !duplicates.examine(proxy, &proxy.into(), both.clone(), now + SECOND, wall + SECOND),
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
        assert!(duplicates.examine(proxy, &proxy.into(), both[1..].to_vec(), now, wall));
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
            now,
            Timestamp::UNIX_EPOCH
        ));
        assert_eq!(duplicates.deadline(), None);
    }
}
