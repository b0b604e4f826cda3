//! The exchange with a client, by resource type: what was pushed, ACKed and NACKed, when, and how many bytes.
//!
//! It is for people. The streams of the client write it, and nothing is decided by it.

use std::sync::Arc;

use ironmesh_xds_wire::ResourceType;
use parking_lot::Mutex;
use tokio::time::Instant;

use super::{Connection, Hub};

/// The exchange of one type with a client, on all its streams since the hub has known it.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Exchange {
    /// The pushes.
    pub pushes: Occurrences,
    /// The size of all pushes, in bytes of uncompressed frames.
    pub bytes: u64,
    /// The ACKs.
    pub acks: Occurrences,
    /// The NACKs.
    pub nacks: Occurrences,
}

/// How often something has happened, and when last.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Occurrences {
    /// How often.
    pub count: u64,
    /// When last; none if never.
    pub last: Option<Instant>,
}

impl Occurrences {
    fn record(&mut self) {
        self.count += 1;
        self.last = Some(Instant::now());
    }
}

/// The exchanges of a client. Its own lock: a push does not wait for the hub.
#[derive(Debug, Default)]
pub(super) struct Exchanges(Mutex<Vec<(ResourceType, Exchange)>>);

impl Exchanges {
    fn update(&self, of: ResourceType, update: impl FnOnce(&mut Exchange)) {
        let mut all = self.0.lock();
        if let Some((_, exchange)) = all.iter_mut().find(|(known, _)| *known == of) {
            return update(exchange);
        }
        let mut exchange = Exchange::default();
        update(&mut exchange);
        all.push((of, exchange));
    }
}

impl Connection {
    /// Records a push of so many bytes.
    pub(crate) fn record_push(&self, of: ResourceType, bytes: usize) {
        self.exchanges.update(of, |exchange| {
            exchange.pushes.record();
            exchange.bytes += bytes as u64;
        });
    }

    /// Records an ACK.
    pub(crate) fn record_ack(&self, of: ResourceType) {
        self.exchanges.update(of, |exchange| exchange.acks.record());
    }

    /// Records a NACK.
    pub(crate) fn record_nack(&self, of: ResourceType) {
        self.exchanges.update(of, |exchange| exchange.nacks.record());
    }
}

impl Hub {
    /// The exchanges with a client, by type; empty if it has never connected.
    pub fn exchanges(&self, client: &str) -> Vec<(ResourceType, Exchange)> {
        let known = self.clients.lock().by_key.get(client).map(|one| Arc::clone(&one.exchanges));
        let mut exchanges = known.map(|known| known.0.lock().clone()).unwrap_or_default();
        exchanges.sort_unstable_by_key(|(of, _)| *of);
        exchanges
    }
}

#[cfg(test)]
mod tests {
    use ironmesh_xds_wire::Node;
    use ironmesh_xds_wire::ResourceType::{Cluster, Listener};

    use super::*;
    use crate::hub::{LiveStream, Reconnect};

    #[tokio::test]
    async fn exchange_counts_by_type_and_survives_the_stream() {
        let hub = Arc::<Hub>::default();
        let connect = || {
            let live = LiveStream::begin("127.0.0.1:1".parse().unwrap(), true);
            hub.connect("x".into(), Node::default(), Reconnect::Fresh, 4, live).unwrap()
        };
        let first = connect();
        first.record_push(Listener, 10);
        first.record_nack(Listener);
        drop(first);
        let second = connect();
        second.record_push(Listener, 5);
        second.record_push(Cluster, 1);
        second.record_ack(Listener);
        let exchanges = hub.exchanges("x");
        let [(Cluster, clusters), (Listener, listeners)] = exchanges[..] else {
            panic!("{exchanges:?}")
        };
        assert_eq!((clusters.pushes.count, clusters.bytes, clusters.acks.count), (1, 1, 0));
        assert_eq!(clusters.acks.last, None);
        assert_eq!((listeners.pushes.count, listeners.bytes), (2, 15));
        assert_eq!((listeners.acks.count, listeners.nacks.count), (1, 1));
        assert!(listeners.nacks.last <= listeners.acks.last);
        assert!(hub.exchanges("y").is_empty());
    }
}
