//! The open health discovery streams of each client, of which the newest one counts.

use std::sync::Arc;

use foldhash::HashMap;
use parking_lot::Mutex;
use tokio::sync::watch;

use super::{ClientKey, Hub};

/// The most open streams of one client: in a hot restart two processes have one each. One more ends the oldest.
const MAX_STREAMS: usize = 2;

/// Why the server ends a stream.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum HealthStreamEnd {
    /// The client has opened others.
    Displaced,
    /// The client was disconnected, for this reason.
    Disconnected(Arc<str>),
}

/// The open streams of all clients.
#[derive(Debug, Default)]
pub(super) struct HealthStreams(Mutex<OpenStreams>);

#[derive(Debug, Default)]
struct OpenStreams {
    last: u64,
    /// The streams of each client, the oldest first.
    by_client: HashMap<ClientKey, Vec<OpenStream>>,
}

/// The number of a stream, and what ends it.
type OpenStream = (u64, watch::Sender<Option<HealthStreamEnd>>);

/// A stream that is open until this is dropped.
#[derive(Debug)]
pub(crate) struct HealthStream {
    hub: Arc<Hub>,
    client: ClientKey,
    number: u64,
    /// Changes when the stream must end.
    pub(crate) end: watch::Receiver<Option<HealthStreamEnd>>,
}

impl Hub {
    /// Registers a new health discovery stream of a client.
    pub(crate) fn open_health_stream(self: &Arc<Self>, client: &ClientKey) -> HealthStream {
        let mut open = self.health_streams.0.lock();
        open.last += 1;
        let number = open.last;
        let streams = open.by_client.entry(Arc::clone(client)).or_default();
        if streams.len() >= MAX_STREAMS {
            let (_, oldest) = streams.remove(0);
            oldest.send_replace(Some(HealthStreamEnd::Displaced));
        }
        let (sender, end) = watch::channel(None);
        streams.push((number, sender));
        HealthStream { hub: Arc::clone(self), client: Arc::clone(client), number, end }
    }

    /// Ends the health discovery streams of a client.
    pub(super) fn end_health_streams(&self, client: &str, reason: &str) {
        let open = self.health_streams.0.lock();
        for (_, end) in open.by_client.get(client).into_iter().flatten() {
            end.send_replace(Some(HealthStreamEnd::Disconnected(reason.into())));
        }
    }
}

impl HealthStream {
    /// Whether the client has opened no other stream since, which is still open: a process that ends after a hot restart
    /// does not count.
    pub(crate) fn is_newest(&self) -> bool {
        let open = self.hub.health_streams.0.lock();
        let newest = open.by_client.get(&self.client).and_then(|streams| streams.last());
        newest.is_some_and(|(number, _)| *number == self.number)
    }
}

impl Drop for HealthStream {
    fn drop(&mut self) {
        let mut open = self.hub.health_streams.0.lock();
        if let Some(streams) = open.by_client.get_mut(&self.client) {
            streams.retain(|(number, _)| *number != self.number);
            if streams.is_empty() {
                open.by_client.remove(&self.client);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn end(stream: &HealthStream) -> Option<HealthStreamEnd> {
        stream.end.borrow().clone()
    }

    #[test]
    fn newest_health_stream_counts_and_a_third_one_ends_the_oldest() {
        let (hub, client) = (Arc::new(Hub::default()), ClientKey::from("a"));
        let first = hub.open_health_stream(&client);
        assert!(first.is_newest());
        let second = hub.open_health_stream(&client);
        assert!(!first.is_newest() && second.is_newest());
        drop(second);
        assert!(first.is_newest(), "the newer process has ended");
        let second = hub.open_health_stream(&client);
        let third = hub.open_health_stream(&client);
        assert_eq!(end(&first), Some(HealthStreamEnd::Displaced));
        assert_eq!((end(&second), end(&third)), (None, None));
        drop((first, second, third));
        assert!(hub.health_streams.0.lock().by_client.is_empty());
    }

    #[test]
    fn disconnected_client_loses_its_health_streams_alone() {
        let hub = Arc::new(Hub::default());
        let (one, other) =
            (hub.open_health_stream(&"a".into()), hub.open_health_stream(&"b".into()));
        hub.disconnect("a", "revoked");
        assert_eq!(end(&one), Some(HealthStreamEnd::Disconnected("revoked".into())));
        assert_eq!(end(&other), None);
    }
}
