//! What a listener remembers of each source: open connections and recent failures.

use std::collections::BTreeMap;
use std::fmt;
use std::net::{IpAddr, Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use crate::limits::ListenerLimits;
use crate::losses::ConnectionLoss;

/// The addresses of one machine, or of one site behind NAT: an IPv4 address, or an IPv6 network of 64 bits.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum ClientSource {
    /// An IPv4 address.
    V4(Ipv4Addr),
    /// The first 64 bits of an IPv6 address.
    V6([u16; 4]),
}

impl ClientSource {
    /// The source of a client.
    pub fn of(address: SocketAddr) -> Self {
        match address.ip().to_canonical() {
            IpAddr::V4(address) => Self::V4(address),
            IpAddr::V6(address) => {
                let [a, b, c, d, ..] = address.segments();
                Self::V6([a, b, c, d])
            }
        }
    }
}

impl fmt::Display for ClientSource {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::V4(address) => address.fmt(formatter),
            Self::V6(network) => {
                let mut segments = [0; 8];
                segments.iter_mut().zip(network).for_each(|(segment, part)| *segment = *part);
                write!(formatter, "{}/64", Ipv6Addr::from(segments))
            }
        }
    }
}

/// The open connections, in total and by source.
pub(crate) struct ConnectionTable {
    limits: ListenerLimits,
    open: Arc<Mutex<OpenConnections>>,
}

#[derive(Debug, Default)]
struct OpenConnections {
    total: usize,
    by_source: BTreeMap<ClientSource, usize>,
}

impl ConnectionTable {
    pub(crate) fn new(limits: ListenerLimits) -> Self {
        Self { limits, open: Arc::default() }
    }

    /// Takes a permit for a connection, unless a limit is reached.
    pub(crate) fn enter(&self, source: ClientSource) -> Result<ConnectionPermit, ConnectionLoss> {
        let mut open = self.open.lock();
        if open.total >= self.limits.connections {
            return Err(ConnectionLoss::Full);
        }
        let of_source = open.by_source.get(&source).copied().unwrap_or(0);
        if of_source >= self.limits.connections_per_source {
            return Err(ConnectionLoss::SourceFull);
        }
        open.total += 1;
        open.by_source.insert(source, of_source + 1);
        Ok(ConnectionPermit { open: Arc::clone(&self.open), source })
    }
}

/// A permit for one connection, released on drop.
pub(crate) struct ConnectionPermit {
    open: Arc<Mutex<OpenConnections>>,
    source: ClientSource,
}

impl Drop for ConnectionPermit {
    fn drop(&mut self) {
        let mut open = self.open.lock();
        open.total = open.total.saturating_sub(1);
        if let Some(count) = open.by_source.get_mut(&self.source) {
            *count = count.saturating_sub(1);
            if *count == 0 {
                open.by_source.remove(&self.source);
            }
        }
    }
}

/// The recent failures of each source, and the blocks that follow from them.
pub(crate) struct FailureTable {
    limits: ListenerLimits,
    by_source: BTreeMap<ClientSource, Failures>,
}

#[derive(Debug, Clone, Copy)]
struct Failures {
    /// The beginning of the minute in which they are counted.
    since: Instant,
    count: u32,
    blocked_until: Option<Instant>,
}

impl Failures {
    fn has_ended(&self, now: Instant) -> bool {
        now >= self.blocked_until.unwrap_or(self.since + MINUTE)
    }
}

const MINUTE: Duration = Duration::from_secs(60);

impl FailureTable {
    pub(crate) fn new(limits: ListenerLimits) -> Self {
        Self { limits, by_source: BTreeMap::new() }
    }

    pub(crate) fn is_blocked(&self, source: ClientSource, now: Instant) -> bool {
        let until = self.by_source.get(&source).and_then(|failures| failures.blocked_until);
        until.is_some_and(|until| now < until)
    }

    /// Counts a failure. Returns whether it blocks the source.
    pub(crate) fn record(&mut self, source: ClientSource, now: Instant) -> bool {
        if !self.by_source.contains_key(&source) {
            self.make_space(now);
        }
        let begin = Failures { since: now, count: 0, blocked_until: None };
        let failures = self.by_source.entry(source).or_insert(begin);
        if failures.has_ended(now) {
            *failures = begin;
        }
        failures.count += 1;
        let is_newly_blocked =
            failures.count >= self.limits.failures_per_minute && failures.blocked_until.is_none();
        if is_newly_blocked {
            failures.blocked_until = Some(now + self.limits.block);
        }
        is_newly_blocked
    }

    /// Forgets what has ended if the table is full; if nothing has, the oldest entry, blocked ones last.
    fn make_space(&mut self, now: Instant) {
        if self.by_source.len() < self.limits.sources {
            return;
        }
        self.by_source.retain(|_, failures| !failures.has_ended(now));
        if self.by_source.len() >= self.limits.sources {
            let by_age = |(_, failures): &(&ClientSource, &Failures)| {
                (failures.blocked_until.is_some(), failures.since)
            };
            let oldest = self.by_source.iter().min_by_key(by_age).map(|(source, _)| *source);
            if let Some(oldest) = oldest {
                self.by_source.remove(&oldest);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn source(text: &str) -> ClientSource {
        ClientSource::of(SocketAddr::new(text.parse().unwrap(), 1))
    }

    #[test]
    fn source_is_an_ipv4_address_or_an_ipv6_network() {
        assert_eq!(source("fd00:0:0:1::1"), source("fd00:0:0:1:ffff::2"));
        assert_ne!(source("fd00:0:0:1::1"), source("fd00:0:0:2::1"));
        assert_eq!(source("::ffff:10.0.0.1"), source("10.0.0.1"));
        assert_ne!(source("10.0.0.2"), source("10.0.0.1"));
        assert_eq!(source("fd00:0:0:1::1").to_string(), "fd00:0:0:1::/64");
    }

    #[tokio::test(start_paused = true)]
    async fn source_with_failures_is_blocked_for_a_time() {
        let limits = ListenerLimits { failures_per_minute: 3, ..ListenerLimits::default() };
        let mut table = FailureTable::new(limits);
        let (one, other, now) = (source("10.0.0.1"), source("10.0.0.2"), Instant::now());
        assert!(!table.record(one, now) && !table.record(one, now));
        // A minute later, earlier failures no longer count.
        let later = now + MINUTE;
        assert!(!table.record(one, later) && !table.record(one, later));
        assert!(!table.is_blocked(one, later));
        assert!(table.record(one, later));
        assert!(table.is_blocked(one, later) && !table.is_blocked(other, later));
        assert!(!table.record(one, later), "it is blocked already");
        let end = later + limits.block;
        assert!(!table.is_blocked(one, end));
        assert!(!table.record(one, end), "the count begins again");
    }

    #[tokio::test(start_paused = true)]
    async fn failure_table_is_bounded_and_keeps_blocked_sources() {
        let limits =
            ListenerLimits { sources: 10, failures_per_minute: 2, ..ListenerLimits::default() };
        let mut table = FailureTable::new(limits);
        let (blocked, now) = (source("10.0.0.1"), Instant::now());
        table.record(blocked, now);
        table.record(blocked, now);
        for number in 0..1000 {
            table.record(source(&format!("10.1.{}.{}", number / 250, number % 250)), now);
            assert!(table.by_source.len() <= 10);
        }
        assert!(table.is_blocked(blocked, now));
    }

    #[test]
    fn connections_are_limited_in_total_and_per_source() {
        let limits = ListenerLimits {
            connections: 3,
            connections_per_source: 2,
            ..ListenerLimits::default()
        };
        let table = ConnectionTable::new(limits);
        let (one, other) = (source("10.0.0.1"), source("10.0.0.2"));
        let first = table.enter(one).unwrap_or_else(|_| panic!());
        let _second = table.enter(one).unwrap_or_else(|_| panic!());
        assert_eq!(table.enter(one).err(), Some(ConnectionLoss::SourceFull));
        let _third = table.enter(other).unwrap_or_else(|_| panic!());
        assert_eq!(table.enter(other).err(), Some(ConnectionLoss::Full));
        drop(first);
        assert!(table.enter(one).is_ok());
    }
}
